"""Sends two points with InfluxDB's own client: influx.py ENDPOINT [again], which sends again what is refused for now."""

import sys

from influxdb_client import InfluxDBClient, Point, WritePrecision
from influxdb_client.client.write.retry import WritesRetry
from influxdb_client.client.write_api import SYNCHRONOUS
from influxdb_client.rest import ApiException

retries = WritesRetry(total=3, allowed_methods=["POST"]) if sys.argv[2:] else False
with InfluxDBClient(url=sys.argv[1], token="any", org="any", enable_gzip=True, retries=retries) as client:
    api = client.write_api(write_options=SYNCHRONOUS)
    point = Point("cpu").tag("host", "a b,c=d").field("usage", 81.5).field("cores", 4).field("name", "x")
    api.write(bucket="any", record=point.time(1795420800000, WritePrecision.MS))
    api.write(bucket="any", record=["load value=-0.5 1795420800", "up value=true"], write_precision=WritePrecision.S)
    try:
        api.write(bucket="any", record="load value=\nload value=2")
    except ApiException as error:
        assert error.status == 400 and "line 1" in error.message, error
        print("sent")
