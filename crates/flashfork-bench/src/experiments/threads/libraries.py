import os, sys, grpc, numpy, pyarrow, pyarrow.compute
from concurrent.futures import ThreadPoolExecutor
numpy.ones((300, 300)) @ numpy.ones((300, 300))
sys.pool = ThreadPoolExecutor(8)
list(sys.pool.map(lambda n: n * n, range(64)))
pyarrow.compute.sum(pyarrow.table({"x": range(1 << 20)})["x"])
class Answers(grpc.GenericRpcHandler):
	def service(self, call): return grpc.unary_unary_rpc_method_handler(lambda request, _: request)
server = grpc.server(sys.pool, handlers=(Answers(),))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
with grpc.insecure_channel(f"127.0.0.1:{port}") as channel: channel.unary_unary("/a/b")(b"1", timeout=60)
server.stop(None).wait()
