#include "transport/tcp/tcp_connect.hpp"

#include <algorithm>
#include <random>
#include <sstream>
#include <thread>

#include "base/units.hpp"
#include "gradwire/error.hpp"
#include "transport/tcp/tcp_acceptor.hpp"

namespace gradwire::transport::tcp {
namespace {

constexpr std::chrono::seconds kOneTry{5};       // of one address; an unreachable one may say nothing
constexpr std::chrono::milliseconds kPause{50};  // before all addresses are tried again

// What a rank leaves for the others.
struct Card {
  struct Place {
    std::string address;
    std::uint16_t port = 0;
  };
  std::uint64_t nonce = 0;
  std::vector<Place> places;

  [[nodiscard]] std::string to_text() const {
    std::string text = std::to_string(nonce);
    for (const Place& place : places) {
      text += " " + place.address + " " + std::to_string(place.port);
    }
    return text;
  }
  static Card from_text(const std::string& text, int rank) {
    Card card;
    std::istringstream stream(text);
    stream >> card.nonce;
    for (Place place; stream >> place.address >> place.port;) {
      card.places.push_back(place);
    }
    if (card.places.empty()) {
      throw Error(ErrorCode::mismatch, "tcp: what rank " + std::to_string(rank) + " left in the store is no address (" +
                                           text.substr(0, 80) + "); do all ranks run the same version of gradwire?");
    }
    return card;
  }
};

std::string host_key_of(int rank) { return "tcp/host/" + std::to_string(rank); }
std::string key_of(int rank) { return "tcp/" + std::to_string(rank); }

std::uint64_t random_number() {
  std::random_device random;
  return std::uint64_t{random()} << 32U | random();
}

class Connecting {
 public:
  Connecting(const Rendezvous& rendezvous, const TcpOptions& options)
      : rendezvous_(rendezvous), options_(options), deadline_(Clock::now() + options.timeout) {
    made_.peers.resize(static_cast<std::size_t>(options.world_size));
  }

  Connections run() {
    static_cast<void>(own_addresses(options_.interface));  // or its error, before anybody waits
    rendezvous_.put(host_key_of(options_.rank), host_identity());
    std::vector<std::string> hosts;
    for (int rank = 0; rank < options_.world_size; ++rank) {
      hosts.push_back(rank == options_.rank ? host_identity() : read(host_key_of(rank), rank));
      made_.nodes.push_back(
          static_cast<std::uint32_t>(std::find(hosts.begin(), hosts.end(), hosts.back()) - hosts.begin()));
    }
    const bool one_host = std::all_of(made_.nodes.begin(), made_.nodes.end(), [](auto node) { return node == 0; });
    Acceptor acceptor = listen(one_host);
    for (int rank = 0; rank < options_.world_size; ++rank) {
      cards_.push_back(rank == options_.rank ? Card() : Card::from_text(read(key_of(rank), rank), rank));
    }
    for (int rank = 0; rank < options_.rank; ++rank) {
      for (const bool control : {false, true}) {
        slot(rank, control) = reach(rank, control);
      }
    }
    while (const int missing = first_missing()) {
      auto accepted = acceptor.take(deadline_);
      if (!accepted) {
        give_up(missing, "it did not connect");
      }
      set_up(accepted->socket, accepted->control ? Carries::control : Carries::messages);
      slot(accepted->rank, accepted->control) = std::move(accepted->socket);
    }
    return std::move(made_);
  }

 private:
  [[nodiscard]] std::string me() const { return "tcp rank " + std::to_string(options_.rank) + ": "; }
  [[noreturn]] void give_up(int rank, const std::string& why) const {
    throw Error(ErrorCode::timeout, me() + "no connection with rank " + std::to_string(rank) + " within " +
                                        format_duration(options_.timeout) + " (" + why + ")");
  }
  [[nodiscard]] Socket& slot(int rank, bool control) {
    Connections::Peer& peer = made_.peers[static_cast<std::size_t>(rank)];
    return control ? peer.control : peer.messages;
  }
  [[nodiscard]] std::chrono::milliseconds left() const {
    return std::max(std::chrono::milliseconds(1),
                    std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()));
  }

  // On the addresses that are left for others, and on no more.
  Acceptor listen(bool one_host) const {
    Card own{.nonce = random_number(), .places = {}};
    std::vector<Listener> listeners;
    std::string why;
    for (const std::string& address : addresses_for(options_.interface, one_host)) {
      if (Listener listener = listen_at(address, why); listener.socket.valid()) {
        own.places.push_back({address, listener.port});
        listeners.push_back(std::move(listener));
      }
    }
    if (listeners.empty()) {
      throw Error(ErrorCode::transport, me() + "none of this host's addresses can be listened on: " + why);
    }
    rendezvous_.put(key_of(options_.rank), own.to_text());
    return {std::move(listeners),
            {.nonce = own.nonce, .rank = static_cast<std::uint32_t>(options_.rank)},
            options_.world_size};
  }

  std::string read(const std::string& key, int rank) const {
    try {
      return rendezvous_.get(key, left());
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      give_up(rank, std::string("it has not left its address: ") + error.what());
    }
  }

  // Addresses that lead nowhere, or to another host of the same address, are passed over.
  Socket reach(int rank, bool control) const {
    const Card& card = cards_[static_cast<std::size_t>(rank)];
    std::string tried;
    do {
      tried.clear();
      for (const auto& [address, port] : card.places) {
        std::string why;
        Socket socket = connect_until(address, port, std::min(deadline_, Clock::now() + kOneTry), why);
        if (socket.valid() && greets(socket, rank, control)) {
          set_up(socket, control ? Carries::control : Carries::messages);
          return socket;
        }
        tried += (tried.empty() ? "" : ", ") + address + " port " + std::to_string(port) + ": " +
                 (socket.valid() ? "somebody else answers" : why);
      }
      std::this_thread::sleep_for(std::min<Clock::duration>(kPause, deadline_ - Clock::now()));
    } while (Clock::now() < deadline_);
    give_up(rank, tried);
  }

  [[nodiscard]] bool greets(const Socket& socket, int rank, bool control) const {
    const auto until = std::min(deadline_, Clock::now() + kGreetingLimit);
    const std::uint64_t nonce = cards_[static_cast<std::size_t>(rank)].nonce;
    Greeting mine{.nonce = nonce, .rank = static_cast<std::uint32_t>(options_.rank), .control = control ? 1U : 0U};
    Greeting theirs;
    return write_until(socket, bytes_of(mine), until) && read_until(socket, bytes_of(theirs), until) &&
           theirs.magic == kGreetingMagic && theirs.nonce == nonce && theirs.rank == static_cast<std::uint32_t>(rank) &&
           write_until(socket, bytes_of(mine), until);  // the answer came in time
  }

  // 0: none. Lower ranks are there already.
  [[nodiscard]] int first_missing() {
    for (int rank = options_.rank + 1; rank < options_.world_size; ++rank) {
      if (!slot(rank, false).valid() || !slot(rank, true).valid()) {
        return rank;
      }
    }
    return 0;
  }

  const Rendezvous& rendezvous_;
  const TcpOptions& options_;
  Clock::time_point deadline_;
  std::vector<Card> cards_;
  Connections made_;
};

}  // namespace

Connections connect_all(const Rendezvous& rendezvous, const TcpOptions& options) {
  return Connecting(rendezvous, options).run();
}

}  // namespace gradwire::transport::tcp
