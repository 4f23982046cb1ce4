// Somebody between processes: passes on what they send over TCP, keeps a copy, and may change it.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "security/cryptography.hpp"
#include "tests/transport/tcp_world.hpp"
#include "transport/tcp/tcp_card.hpp"
#include "transport/tcp/tcp_socket.hpp"

namespace gradwire::test {

/// Keys of connections for a job with this key.
inline Keys keys_of(security::Key key) {
  return std::make_shared<const transport::tcp::ConnectionKeys>(security::Cryptography::load(), std::move(key));
}

class Middle {
 public:
  using Bytes = std::vector<std::byte>;
  /// May change what is passed on; `up`: it comes from the side that has made the connection. False: the connection is
  /// closed.
  using Change = std::function<bool(std::size_t connection, bool up, Bytes& bytes)>;

  explicit Middle(Change change = [](std::size_t, bool, Bytes&) { return true; })
      : change_(std::move(change)), thread_([this] { run(); }) {}
  ~Middle() {
    over_ = true;
    thread_.join();
  }
  Middle(const Middle&) = delete;
  Middle& operator=(const Middle&) = delete;

  /// The same card with ports of this one.
  [[nodiscard]] transport::tcp::Card before(transport::tcp::Card card) {
    const std::lock_guard lock(mutex_);
    for (transport::tcp::Card::Place& place : card.places) {
      std::string why;
      doors_.push_back({.listener = transport::tcp::listen_at(place.address, why), .to = place});
      EXPECT_TRUE(doors_.back().listener.socket.valid()) << why;
      place.port = doors_.back().listener.port;
    }
    return card;
  }
  /// A store whose ranks reach each other's transports by way of this one.
  [[nodiscard]] transport::Rendezvous between(transport::Rendezvous inner) {
    return {.put =
                [this, put = inner.put](const std::string& key, const std::string& value) {
                  const auto card = key.starts_with("tcp/") && key.find('/', 4) == std::string::npos
                                        ? transport::tcp::Card::from_text(value)
                                        : std::nullopt;
                  put(key, card ? before(*card).to_text() : value);
                },
            .get = inner.get};
  }
  /// Returns the bytes that were passed on in each direction of a connection. Connections are counted from 0.
  [[nodiscard]] std::pair<Bytes, Bytes> recorded(std::size_t connection) {
    const std::lock_guard lock(mutex_);
    return {connections_.at(connection).sides[0].sent, connections_.at(connection).sides[1].sent};
  }
  [[nodiscard]] std::size_t count() {
    const std::lock_guard lock(mutex_);
    return connections_.size();
  }
  /// Resets or closes all connections that are there.
  void cut() {
    const std::lock_guard lock(mutex_);
    for (Connection& connection : connections_) {
      close(connection);
    }
  }

 private:
  using Socket = transport::tcp::Socket;
  struct Door {
    transport::tcp::Listener listener;
    transport::tcp::Card::Place to;
  };
  struct Side {
    Socket socket;
    Bytes sent;  // by this side
  };
  struct Connection {
    std::array<Side, 2> sides;  // the side that has made it, the other one
  };

  static void close(Connection& connection) {
    for (Side& side : connection.sides) {
      side.socket = Socket();
    }
  }

  void run() {
    while (!over_) {
      std::vector<pollfd> polled;
      {
        const std::lock_guard lock(mutex_);
        for (const Door& door : doors_) {
          polled.push_back({door.listener.socket.fd(), POLLIN, 0});
        }
        for (const Connection& connection : connections_) {
          for (const Side& side : connection.sides) {
            polled.push_back({side.socket.fd(), POLLIN, 0});
          }
        }
      }
      poll(polled.data(), polled.size(), 20);
      const std::lock_guard lock(mutex_);
      for (const Door& door : doors_) {
        let_in(door);
      }
      for (std::size_t i = 0; i < connections_.size(); ++i) {
        pass(i, true);
        pass(i, false);
      }
    }
  }

  void let_in(const Door& door) {
    for (;;) {
      Socket client(accept4(door.listener.socket.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!client.valid()) {
        return;
      }
      std::string why;
      Socket server = transport::tcp::connect_until(door.to.address, door.to.port,
                                                    transport::tcp::Clock::now() + std::chrono::seconds(2), why);
      Connection& made = connections_.emplace_back();
      made.sides[0].socket = std::move(client);
      made.sides[1].socket = std::move(server);
      if (!made.sides[1].socket.valid()) {
        close(made);
      }
    }
  }

  void pass(std::size_t number, bool up) {
    Connection& connection = connections_[number];
    Side& from = connection.sides[up ? 0 : 1];
    const Side& to = connection.sides[up ? 1 : 0];
    std::array<std::byte, 16384> piece{};
    while (from.socket.valid()) {
      const ssize_t count = recv(from.socket.fd(), piece.data(), piece.size(), MSG_DONTWAIT);
      if (count < 0 && errno == EAGAIN) {
        return;
      }
      Bytes bytes(piece.begin(), piece.begin() + std::max<ssize_t>(count, 0));
      from.sent.insert(from.sent.end(), bytes.begin(), bytes.end());
      if (count <= 0 || !change_(number, up, bytes) ||
          !transport::tcp::write_until(to.socket, bytes, transport::tcp::Clock::now() + std::chrono::seconds(10))) {
        close(connection);
      }
    }
  }

  Change change_;
  std::atomic<bool> over_ = false;
  std::mutex mutex_;
  std::deque<Door> doors_;
  std::deque<Connection> connections_;
  std::thread thread_;
};

}  // namespace gradwire::test
