#include "transport/tcp/tcp_connect.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <random>
#include <sstream>
#include <string_view>
#include <thread>

#include "base/units.hpp"
#include "gradwire/error.hpp"

namespace gradwire::transport::tcp {
namespace {

constexpr std::uint64_t kMagic = 0x3170637465726967;  // "giretcp1"
constexpr std::chrono::seconds kOneTry{5};            // of one address; an unreachable one may say nothing
constexpr std::chrono::milliseconds kPause{50};       // before all addresses are tried again
constexpr std::chrono::seconds kGreeting{5};          // whoever connected says at once who it is

// Of who connects, and its answer.
struct Greeting {
  std::uint64_t magic = kMagic;
  std::uint64_t nonce = 0;  // of who is connected to
  std::uint32_t rank = 0;   // of who sends it
  std::uint32_t control = 0;
};
static_assert(sizeof(Greeting) == 24, "no padding: it travels as bytes");

struct Card {
  std::string host;
  std::uint64_t nonce = 0;
  std::uint16_t port = 0;
  std::vector<std::string> addresses;

  [[nodiscard]] std::string to_text() const {
    std::string text = host + " " + std::to_string(nonce) + " " + std::to_string(port);
    for (const std::string& address : addresses) {
      text += " " + address;
    }
    return text;
  }
  static Card from_text(const std::string& text, int rank) {
    Card card;
    std::istringstream stream(text);
    stream >> card.host >> card.nonce >> card.port;
    for (std::string address; stream >> address;) {
      card.addresses.push_back(address);
    }
    if (card.addresses.empty()) {
      throw Error(ErrorCode::mismatch, "tcp: what rank " + std::to_string(rank) + " left in the store is no address (" +
                                           text.substr(0, 80) + "); do all ranks run the same version of gradwire?");
    }
    return card;
  }
};

std::span<std::byte> bytes_of(Greeting& greeting) { return std::as_writable_bytes(std::span(&greeting, 1)); }

std::string key_of(int rank) { return "tcp/" + std::to_string(rank); }

class Connecting {
 public:
  Connecting(const Rendezvous& rendezvous, const TcpOptions& options)
      : rendezvous_(rendezvous),
        options_(options),
        deadline_(Clock::now() + options.timeout),
        listener_(listen_anywhere(2 * options.world_size)) {
    std::random_device random;
    own_ = {.host = host_identity(),
            .nonce = std::uint64_t{random()} << 32U | random(),
            .port = listener_.port,
            .addresses = own_addresses(options.interface)};
    made_.peers.resize(static_cast<std::size_t>(options.world_size));
  }

  Connections run() {
    rendezvous_.put(key_of(options_.rank), own_.to_text());
    for (int rank = 0; rank < options_.world_size; ++rank) {
      cards_.push_back(rank == options_.rank ? own_ : read_card(rank));
    }
    for (int rank = 0; rank < options_.rank; ++rank) {
      for (const bool control : {false, true}) {
        slot(rank, control) = reach(rank, control);
      }
    }
    while (const int missing = first_missing()) {
      take_one(missing);
    }
    for (const Card& card : cards_) {
      const auto first = std::find_if(cards_.begin(), cards_.end(), [&](const Card& c) { return c.host == card.host; });
      made_.nodes.push_back(static_cast<std::uint32_t>(first - cards_.begin()));
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

  Card read_card(int rank) const {
    try {
      return Card::from_text(rendezvous_.get(key_of(rank), left()), rank);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      give_up(rank, std::string("it has not left its address: ") + error.what());
    }
  }

  // Addresses that lead nowhere, or to another host of the same address, are passed over.
  Socket reach(int rank, bool control) const {
    const Card& card = cards_[static_cast<std::size_t>(rank)];
    std::vector<std::string> addresses = card.addresses;
    if (card.host == own_.host) {
      std::rotate(addresses.begin(), addresses.end() - 1, addresses.end());
      addresses.insert(addresses.begin(), {"127.0.0.1", "::1"});
    }
    std::string tried;
    do {
      tried.clear();
      for (const std::string& address : addresses) {
        std::string why;
        Socket socket = connect_until(address, card.port, std::min(deadline_, Clock::now() + kOneTry), why);
        if (socket.valid() && greets(socket, rank, control)) {
          set_up(socket, control ? Carries::control : Carries::messages);
          return socket;
        }
        tried += (tried.empty() ? "" : ", ") + address + " port " + std::to_string(card.port) + ": " +
                 (socket.valid() ? "somebody else answers" : why);
      }
      std::this_thread::sleep_for(std::min<Clock::duration>(kPause, deadline_ - Clock::now()));
    } while (Clock::now() < deadline_);
    give_up(rank, tried);
  }

  [[nodiscard]] bool greets(const Socket& socket, int rank, bool control) const {
    const auto until = std::min(deadline_, Clock::now() + kGreeting);
    const std::uint64_t nonce = cards_[static_cast<std::size_t>(rank)].nonce;
    Greeting mine{.nonce = nonce, .rank = static_cast<std::uint32_t>(options_.rank), .control = control ? 1U : 0U};
    Greeting theirs;
    return write_until(socket, bytes_of(mine), until) && read_until(socket, bytes_of(theirs), until) &&
           theirs.magic == kMagic && theirs.nonce == nonce && theirs.rank == static_cast<std::uint32_t>(rank) &&
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

  void take_one(int missing) {
    Socket socket = accept_until(listener_.socket, deadline_);
    if (Clock::now() >= deadline_) {
      give_up(missing, "it did not connect");
    }
    Greeting theirs;
    if (!socket.valid() || !read_until(socket, bytes_of(theirs), std::min(deadline_, Clock::now() + kGreeting)) ||
        theirs.magic != kMagic || theirs.nonce != own_.nonce || theirs.control > 1 ||
        theirs.rank >= static_cast<std::uint32_t>(options_.world_size) ||
        static_cast<int>(theirs.rank) <= options_.rank) {
      return;  // not one of us
    }
    Greeting mine{.nonce = own_.nonce, .rank = static_cast<std::uint32_t>(options_.rank), .control = theirs.control};
    const auto until = std::min(deadline_, Clock::now() + kGreeting);
    Greeting again;  // else it has given up this connection, and makes another
    if (write_until(socket, bytes_of(mine), until) && read_until(socket, bytes_of(again), until)) {
      set_up(socket, theirs.control == 1 ? Carries::control : Carries::messages);
      slot(static_cast<int>(theirs.rank), theirs.control == 1) = std::move(socket);
    }
  }

  const Rendezvous& rendezvous_;
  const TcpOptions& options_;
  Clock::time_point deadline_;
  Listener listener_;
  Card own_;
  std::vector<Card> cards_;
  Connections made_;
};

}  // namespace

Connections connect_all(const Rendezvous& rendezvous, const TcpOptions& options) {
  return Connecting(rendezvous, options).run();
}

}  // namespace gradwire::transport::tcp
