import requests

response = requests.post(
    'http://localhost:4000/api/v1/ratelimit',
    json={'client_id': 'user123', 'resource': 'api'},
    headers={'Content-Type': 'application/json'}
)
print(response.json())
