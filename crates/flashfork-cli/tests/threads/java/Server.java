import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.*;
import java.util.concurrent.*;

/** A web server whose answers take some work, are compiled while it is warmed, and are drawn by chance. */
public class Server {
	static final Map<Integer, String> CACHE = new ConcurrentHashMap<>();

	static long work(int n) {
		long sum = n;
		for (int i = 0; i < 20_000; i++) sum = sum * 31 + (i ^ n);
		return sum;
	}

	public static void main(String[] arguments) throws Exception {
		for (int i = 0; i < 2_000; i++) CACHE.put(i, Long.toHexString(work(i)));
		HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])), 0);
		server.setExecutor(Executors.newFixedThreadPool(4));
		server.createContext("/", exchange -> {
			int n = Integer.parseInt(exchange.getRequestURI().getPath().substring(1));
			byte[] answer = (CACHE.get(n) + " " + Long.toHexString(work(n)) + " " + UUID.randomUUID() + " "
					+ ProcessHandle.current().pid()).getBytes();
			exchange.sendResponseHeaders(200, answer.length);
			exchange.getResponseBody().write(answer);
			exchange.close();
		});
		server.start();
	}
}
