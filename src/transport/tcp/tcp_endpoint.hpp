// The transport of tcp_transport.hpp.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/operations.hpp"
#include "transport/tcp/tcp_connect.hpp"
#include "transport/tcp/tcp_control.hpp"
#include "transport/tcp/tcp_stream.hpp"
#include "transport/tcp/tcp_transport.hpp"

namespace gradwire::transport::tcp {

class TcpTransport final : public Transport, public RequestSink {
 public:
  TcpTransport(const Rendezvous& rendezvous, const TcpOptions& options);
  ~TcpTransport() override;

  [[nodiscard]] std::string name() const override { return "tcp"; }
  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int world_size() const noexcept override { return static_cast<int>(peers_.size()); }
  [[nodiscard]] TransportCapabilities capabilities() const override {
    return {.receives_at_most = true, .encrypted = encrypted_, .emulation = {}};
  }
  [[nodiscard]] std::vector<std::uint32_t> nodes() const override { return nodes_; }

  void post_send(Operation& operation, int peer, Tag tag, std::span<const std::byte> data) override;
  void post_receive(Operation& operation, int peer, Tag tag, std::span<std::byte> data) override {
    receive(operation, peer, tag, data, false);
  }
  void post_receive_at_most(Operation& operation, int peer, Tag tag, std::span<std::byte> data) override {
    receive(operation, peer, tag, data, true);
  }
  void post_all_reduce(Operation& operation, View data) override;
  bool progress(std::chrono::microseconds wait) override;
  bool cancel(Operation& operation) noexcept override;
  [[nodiscard]] std::vector<PeerState> ask(std::chrono::milliseconds limit) override;
  void abort(const Error& error) noexcept override;
  [[nodiscard]] std::optional<int> failed_peer() const noexcept override {
    const int rank = failed_peer_;
    return rank < 0 ? std::nullopt : std::optional(rank);
  }
  [[nodiscard]] TransportCounters counters() const override { return counters_.read(); }

 private:
  struct Peer {
    Peer(Connections::Peer connection, RequestSink& sink)
        : stream(std::move(connection.messages), sink), control(std::move(connection.control)) {}
    Stream stream;
    ControlConnection control;
    std::uint32_t events = 0;  // the events that the stream is polled for
    bool left = false;         // it said that it leaves
    bool unheard = false;      // its control connection ended, and is no longer polled
  };

  void receive(Operation& operation, int peer, Tag tag, std::span<std::byte> data, bool at_most);
  void finished(Request& request) override;
  void failed(Request& request, const std::string& why) override;

  Request& add(Operation& operation);
  void remove(Request& request);
  void watch(int rank, bool control, std::uint32_t events, int how) const;
  void want(int rank);
  void throw_if_aborted() const;
  /// Waits for one of the connections, then sends and receives as much as possible.
  void move(Clock::time_point deadline);
  bool take_unread();
  void take(int rank);
  void hear(int rank);
  void check_peer_ended(int rank);
  [[nodiscard]] std::string loss_of(int rank, const std::string& why) const;
  [[nodiscard]] std::string awaited_ranks() const;

  int rank_;
  bool encrypted_ = false;
  std::vector<std::uint32_t> nodes_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; this rank's is null
  Socket poll_;
  Socket wake_;  // for an abort by another thread
  std::list<Request> requests_;
  std::vector<Request*> finished_;
  std::optional<std::string> failure_;
  std::uint32_t question_ = 0;
  std::vector<std::optional<PeerState>> answers_;  // answers to the latest question
  Counters counters_;
  AbortNote abort_;
  std::atomic<int> failed_peer_ = -1;
};

}  // namespace gradwire::transport::tcp
