curl -X POST http://localhost:4000/api/v1/ratelimit \
  -H "Content-Type: application/json" \
  -d '{"client_id":"user123","resource":"api"}'
