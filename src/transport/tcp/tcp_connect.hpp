// How ranks find each other: each publishes its port, its addresses and a secret number, connects to all lower ranks,
// and accepts the connections of all higher ones.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/tcp/tcp_socket.hpp"
#include "transport/tcp/tcp_transport.hpp"

namespace gradwire::transport::tcp {

struct Connections {
  struct Peer {
    Socket messages;
    Socket control;
  };
  std::vector<Peer> peers;           // by rank; this rank's is empty
  std::vector<std::uint32_t> nodes;  // of each rank
  bool encrypted = false;
};

[[nodiscard]] Connections connect_all(const Rendezvous& rendezvous, const TcpOptions& options);

}  // namespace gradwire::transport::tcp
