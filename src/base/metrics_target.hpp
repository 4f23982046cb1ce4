// The value of GRADWIRE_METRICS, parsed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gradwire {

/// "file:/var/lib/node_exporter", "http:127.0.0.1:9464+rank", "otlp:/var/log/gradwire", "unix:/run/user/1000/gradwire",
/// or several of them with commas between them.
struct MetricsTarget {
  struct Http {
    std::string address = "127.0.0.1";  // "0.0.0.0", "[::1]"
    std::uint16_t port = 0;
    bool add_rank = false;  // adds the rank to the port

    /// "127.0.0.1:9467" of rank 3. Error(invalid_argument) where the port would be above 65535.
    [[nodiscard]] std::string for_rank(int rank) const;
  };
  std::string directory;  // empty: no files
  std::optional<Http> http;
  std::string otlp;     // a directory; empty: no OTLP files
  std::string sockets;  // a directory; empty: no Unix sockets

  /// Parses the text; Error(invalid_argument) quotes it and says what is allowed.
  [[nodiscard]] static MetricsTarget parse(std::string_view text);
};

}  // namespace gradwire
