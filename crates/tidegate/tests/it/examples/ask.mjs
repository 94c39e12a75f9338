const response = await fetch('http://localhost:4000/api/v1/ratelimit', {
  method: 'POST',
  headers: {'Content-Type': 'application/json'},
  body: JSON.stringify({client_id: 'user123', resource: 'api'})
});
const result = await response.json();
console.log(result);
