// Metrics of this process over a Unix socket, which only its user may connect to.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "watch/served_totals.hpp"

namespace gradwire::watch {

struct SocketOptions {
  std::filesystem::path directory;  // made where it is missing
  std::function<void(const std::string&)> warn;
};

/// As file_name() with ".sock" at its end.
[[nodiscard]] std::string socket_name(const std::string& part, int rank, const std::string& job = {});

/// Listens from the first round that knows the rank until the last one: on a socket of mode 0600, which speaks HTTP/1.0
/// and answers GET /metrics, one request at a time, with the text of a textfile for all ranks of this process. A
/// request has 2 s and 8 KiB. A socket of that name is replaced if it is this user's and nobody listens there. If it
/// cannot listen, it warns once and gives up.
class SocketListener final : public Subscriber {
 public:
  SocketListener(SocketOptions options, std::shared_ptr<Totals> totals);
  ~SocketListener() override;
  void take(Totals& totals) override;
  [[nodiscard]] bool done() const noexcept override { return given_up_; }

 private:
  class Server;

  SocketOptions options_;
  std::shared_ptr<ServedTotals> served_;
  std::shared_ptr<Server> server_;
  bool given_up_ = false;
};

}  // namespace gradwire::watch
