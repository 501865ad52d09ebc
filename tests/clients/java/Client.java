// SPDX-License-Identifier: MIT
// Java's HttpClient and HttpURLConnection. It reads a command a line and tells what it sees, each as a JSON string (jvm.py): words
// with a space between them, texts and bytes in Base64.
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.net.Authenticator;
import java.net.HttpURLConnection;
import java.net.PasswordAuthentication;
import java.net.URI;
import java.net.URL;
import java.net.http.HttpClient;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.WebSocket;
import java.net.http.WebSocketHandshakeException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Base64;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;

class Client {
    static HttpClient client;
    static WebSocket socket;

    static synchronized void tell(Object... words) {
        var line = new StringBuilder("\"");
        for (var word : words) line.append(line.length() > 1 ? " " : "").append(word);
        System.out.println(line.append('"'));
    }

    static String packed(byte[] bytes) {
        return Base64.getEncoder().encodeToString(bytes);
    }

    static String packed(String text) {
        return packed(text.getBytes(StandardCharsets.UTF_8));
    }

    static byte[] packed(ByteBuffer buffer) {
        var bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }

    // Tells of messages as they are whole.
    static class Listener implements WebSocket.Listener {
        private final StringBuilder text = new StringBuilder();
        private final java.io.ByteArrayOutputStream bytes = new java.io.ByteArrayOutputStream();

        // Nothing comes before open() has told that it is open, and asks for it.
        public void onOpen(WebSocket from) {}

        public CompletionStage<?> onText(WebSocket from, CharSequence data, boolean last) {
            text.append(data);
            if (last) {
                tell("text", packed(text.toString()));
                text.setLength(0);
            }
            from.request(1);
            return null;
        }

        public CompletionStage<?> onBinary(WebSocket from, ByteBuffer data, boolean last) {
            bytes.writeBytes(packed(data));
            if (last) {
                tell("bytes", packed(bytes.toByteArray()));
                bytes.reset();
            }
            from.request(1);
            return null;
        }

        public CompletionStage<?> onPong(WebSocket from, ByteBuffer data) {
            tell("pong", packed(packed(data)));
            from.request(1);
            return null;
        }

        public CompletionStage<?> onClose(WebSocket from, int code, String reason) {
            tell("close", code, packed(reason));
            return null;
        }

        public void onError(WebSocket from, Throwable error) {
            tell("error", packed(String.valueOf(error)));
        }
    }

    static void open(String url, String authorization, String protocols) {
        var builder = client.newWebSocketBuilder();
        if (!authorization.isEmpty()) builder.header("Authorization", "Bearer " + authorization);
        var offered = protocols.split(",");
        if (!offered[0].isEmpty()) builder.subprotocols(offered[0], Arrays.copyOfRange(offered, 1, offered.length));
        try {
            socket = builder.buildAsync(URI.create(url), new Listener()).join();
            tell("open", socket.getSubprotocol());
            socket.request(1);
        } catch (CompletionException failed) {
            if (failed.getCause() instanceof WebSocketHandshakeException refused) tell("refused", refused.getResponse().statusCode());
            else tell("error", packed(failed.getCause().toString()));
        }
    }

    static void request(String url, String authorization, int size) throws InterruptedException {
        var builder = HttpRequest.newBuilder(URI.create(url)).timeout(Duration.ofSeconds(60));
        if (!authorization.isEmpty()) builder.header("Authorization", "Bearer " + authorization);
        if (size > 0) builder.POST(BodyPublishers.ofByteArray(new byte[size]));
        try {
            HttpResponse<byte[]> answer = client.send(builder.build(), BodyHandlers.ofByteArray());
            tell(answer.statusCode(), answer.version(), packed(answer.body() == null ? new byte[0] : answer.body()));
        } catch (IOException failed) {
            tell("error", packed(failed.toString()));
        }
    }

    static void legacy(String url) {
        try {
            var connection = (HttpURLConnection) new URL(url).openConnection();
            try (InputStream body = connection.getInputStream()) {
                tell(connection.getResponseCode(), "-", packed(body.readAllBytes()));
            }
        } catch (IOException failed) {
            tell("error", packed(failed.toString()));
        }
    }

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null; ) {
            var words = Arrays.copyOf(line.substring(1, line.length() - 1).split(" ", -1), 4);
            var data = words[1] == null || !words[0].matches("text|bytes|ping") ? null : Base64.getDecoder().decode(words[1]);
            switch (words[0]) {
                case "client" -> {
                    var password = words[1].toCharArray();
                    var authenticator = new Authenticator() {
                        protected PasswordAuthentication getPasswordAuthentication() {
                            return new PasswordAuthentication("sandbox", password);
                        }
                    };
                    var builder = HttpClient.newBuilder();
                    if (password.length > 0) {
                        builder.authenticator(authenticator);
                        Authenticator.setDefault(authenticator);
                    }
                    client = builder.build();
                }
                case "open" -> open(words[1], words[2], words[3]);
                case "text" -> socket.sendText(new String(data, StandardCharsets.UTF_8), true).join();
                case "bytes" -> socket.sendBinary(ByteBuffer.wrap(data), true).join();
                case "ping" -> socket.sendPing(ByteBuffer.wrap(data)).join();
                case "close" -> socket.sendClose(Integer.parseInt(words[1]), "done").join();
                case "request" -> request(words[1], words[2], Integer.parseInt(words[3]));
                case "legacy" -> legacy(words[1]);
                default -> throw new IllegalArgumentException(line);
            }
        }
    }
}
