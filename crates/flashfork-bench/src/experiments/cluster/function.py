import os
import socket

held = bytearray(int(os.environ["HELD"]))
for page in range(0, len(held), 4096):
	held[page] = 1


def lambda_handler(event, context):
	if "count" in event:
		with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as counter:
			counter.sendto(str(event["number"]).encode(), event["count"])
	return event["number"]
