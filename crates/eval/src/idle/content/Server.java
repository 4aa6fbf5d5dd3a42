// A small service that holds records in memory and answers with those that are asked for.
// java Server.java PORT RECORDS SEED
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Executors;

public class Server {
    record Address(String street, String city, int zip) {}
    record Review(int stars, String author, String text) {}
    record Entry(int id, String name, Address address, List<String> tags, List<Double> prices, List<Review> reviews) {}

    static final String[] SYLLABLES = "ka lo mi ren tas ve dor un pel si gra fo".split(" ");
    static final Map<Integer, Entry> ENTRIES = new HashMap<>();
    static Random random;

    static String word() {
        return SYLLABLES[random.nextInt(12)] + SYLLABLES[random.nextInt(12)] + SYLLABLES[random.nextInt(12)];
    }

    static String words(int n) {
        StringBuilder out = new StringBuilder(word());
        for (int i = 1; i < n; i++) out.append(' ').append(word());
        return out.toString();
    }

    static Entry entry(int id) {
        Address address = new Address(words(2), word(), 10000 + random.nextInt(90000));
        List<String> tags = new ArrayList<>();
        for (int i = 0; i < 6; i++) tags.add(word());
        List<Double> prices = new ArrayList<>();
        for (int i = 0; i < 12; i++) prices.add(random.nextInt(100000) / 100.0);
        List<Review> reviews = new ArrayList<>();
        for (int i = 0; i < 3; i++) reviews.add(new Review(1 + random.nextInt(5), words(2), words(24)));
        return new Entry(id, words(2), address, tags, prices, reviews);
    }

    static void append(StringBuilder out, Entry entry) {
        out.append("{\"id\":").append(entry.id()).append(",\"name\":\"").append(entry.name());
        out.append("\",\"street\":\"").append(entry.address().street());
        out.append("\",\"city\":\"").append(entry.address().city());
        out.append("\",\"zip\":").append(entry.address().zip()).append(",\"tags\":\"");
        for (String tag : entry.tags()) out.append(tag).append(' ');
        double total = 0;
        for (double price : entry.prices()) total += price;
        out.append("\",\"total\":").append(total).append(",\"reviews\":[");
        for (Review review : entry.reviews()) {
            out.append("{\"stars\":").append(review.stars()).append(",\"author\":\"").append(review.author());
            out.append("\",\"text\":\"").append(review.text()).append("\"},");
        }
        out.append("{}]}");
    }

    static void answer(HttpExchange exchange) throws IOException {
        String query = exchange.getRequestURI().getQuery();
        StringBuilder out = new StringBuilder("[");
        for (String key : query.substring("keys=".length()).split(",")) {
            if (out.length() > 1) out.append(',');
            append(out, ENTRIES.get(Integer.parseInt(key)));
        }
        byte[] body = out.append(']').toString().getBytes(StandardCharsets.UTF_8);
        exchange.sendResponseHeaders(200, body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }

    public static void main(String[] arguments) throws IOException {
        int count = Integer.parseInt(arguments[1]);
        random = new Random(Long.parseLong(arguments[2]));
        for (int id = 0; id < count; id++) ENTRIES.put(id, entry(id));
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])), 64);
        server.createContext("/", Server::answer);
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.start();
    }
}
