#include "transport/tcp/tcp_connect.hpp"

#include <algorithm>
#include <thread>

#include "base/awake_time.hpp"
#include "base/units.hpp"
#include "gradwire/error.hpp"
#include "transport/tcp/tcp_acceptor.hpp"
#include "transport/tcp/tcp_card.hpp"
#include "transport/tcp/tcp_descriptors.hpp"
#include "transport/tcp/tcp_keys.hpp"

namespace gradwire::transport::tcp {
namespace {

constexpr std::chrono::milliseconds kConnectPause{
    50};  // pause before all addresses are tried again, and between checks whether to go on

const std::string kKeyMark = " key ";

std::string host_key_of(int rank) { return "tcp/host/" + std::to_string(rank); }
std::string key_of(int rank) { return "tcp/" + std::to_string(rank); }

class Connecting {
 public:
  Connecting(const Rendezvous& rendezvous, const TcpOptions& options)
      : rendezvous_(rendezvous),
        options_(options),
        keys_(options.keys != nullptr ? options.keys : ConnectionKeys::of_job()),
        deadline_(Clock::now() + options.timeout) {
    made_.peers.resize(static_cast<std::size_t>(options.world_size));
    made_.encrypted = keys_ != nullptr;
  }

  Connections run() {
    static_cast<void>(own_addresses(options_.interface));  // throws its error before any rank waits
    const std::string key = keys_ == nullptr ? "" : kKeyMark + keys_->check_value();
    rendezvous_.put(host_key_of(options_.rank), host_identity() + key);
    std::vector<std::string> hosts;
    for (int rank = 0; rank < options_.world_size; ++rank) {
      hosts.push_back(rank == options_.rank ? host_identity() : host_of(rank, key));
      made_.nodes.push_back(
          static_cast<std::uint32_t>(std::find(hosts.begin(), hosts.end(), hosts.back()) - hosts.begin()));
    }
    const bool one_host = std::all_of(made_.nodes.begin(), made_.nodes.end(), [](auto node) { return node == 0; });
    Acceptor acceptor = listen(one_host);
    for (int rank = 0; rank < options_.world_size; ++rank) {
      cards_.push_back(rank == options_.rank ? Card() : card_of(rank));
    }
    for (int rank = 0; rank < options_.rank; ++rank) {
      for (const bool control : {false, true}) {
        slot(rank, control) = reach(rank, control);
      }
    }
    while (const int missing = first_missing()) {
      auto accepted = acceptor.take(std::min(deadline_, Clock::now() + kConnectPause));
      look_whether_to_go_on();
      if (!accepted && Clock::now() >= deadline_) {
        give_up(missing, "it did not connect");
      }
      if (!accepted) {
        continue;
      }
      set_up(accepted->socket, accepted->purpose == Purpose::control ? Carries::control : Carries::messages);
      slot(accepted->rank, accepted->purpose == Purpose::control) = std::move(accepted->socket);
    }
    return std::move(made_);
  }

 private:
  [[nodiscard]] std::string me() const { return "tcp rank " + std::to_string(options_.rank) + ": "; }
  [[noreturn]] void give_up(int rank, const std::string& why) const {
    throw Error(ErrorCode::timeout,
                me() + "no connection with rank " + std::to_string(rank) + " within " +
                    format_duration(options_.timeout) + " (" + why + ")",
                ErrorCause::world);
  }
  // Time for which this process was stopped does not count, since it could not connect then.
  void look_whether_to_go_on() {
    deadline_ = Clock::now() + (options_.timeout - time_.waited());
    if (options_.go_on) {
      options_.go_on();
    }
  }
  [[nodiscard]] Socket& slot(int rank, bool control) {
    Connections::Peer& peer = made_.peers[static_cast<std::size_t>(rank)];
    return control ? peer.control : peer.messages;
  }
  [[nodiscard]] std::chrono::milliseconds left() const {
    return std::max(std::chrono::milliseconds(1),
                    std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()));
  }

  // Listens on exactly the addresses that this rank tells others.
  Acceptor listen(bool one_host) const {
    Listening made = listen_on(addresses_for(options_.interface, one_host), me());
    rendezvous_.put(key_of(options_.rank), made.card.to_text());
    if (!options_.go_on) {  // processes have said so when they began
      tell_where(made, keys_ != nullptr);
    }
    const auto rank = static_cast<std::uint32_t>(options_.rank);
    const auto end = static_cast<std::uint32_t>(options_.world_size);
    return {std::move(made.listeners),
            {.nonce = made.card.nonce, .rank = rank},
            {.first = rank + 1, .end = end, .at_once = 2 * std::size_t{end}},
            keys_};
  }

  // The host of a rank, which must have the same key as this one.
  std::string host_of(int rank, const std::string& key) const {
    std::string said = read(host_key_of(rank), rank);
    const std::size_t mark = std::min(said.find(kKeyMark), said.size());
    if (said.substr(mark) != key) {
      const auto what = [](const std::string& of) {
        return of.empty() ? "no key" : "the key" + of.substr(kKeyMark.size() - 1);
      };
      throw Error(ErrorCode::mismatch, me() + "security: rank " + std::to_string(rank) + " has " +
                                           what(said.substr(mark)) + ", and this rank has " + what(key) +
                                           " (gradwire key check FILE prints this); set GRADWIRE_KEY to the " +
                                           "same key on every rank, or on none");
    }
    said.resize(mark);
    return said;
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

  Card card_of(int rank) const {
    const std::string text = read(key_of(rank), rank);
    auto card = Card::from_text(text);
    if (!card || card->places.empty()) {
      throw Error(ErrorCode::mismatch, "tcp: what rank " + std::to_string(rank) + " left in the store is no address (" +
                                           text.substr(0, 80) + "); do all ranks run the same version of gradwire?");
    }
    return std::move(*card);
  }

  // Skips addresses that lead nowhere, or to another host with the same address.
  Socket reach(int rank, bool control) {
    const Card& card = cards_[static_cast<std::size_t>(rank)];
    std::string tried;
    do {
      look_whether_to_go_on();
      const Greeting mine{.rank = static_cast<std::uint32_t>(options_.rank), .purpose = control ? 1U : 0U};
      Socket socket = card.reach(deadline_, mine, static_cast<std::uint32_t>(rank), tried, keys_.get());
      if (socket.valid()) {
        set_up(socket, control ? Carries::control : Carries::messages);
        return socket;
      }
      check_for_one_descriptor(me());
      std::this_thread::sleep_for(std::min<Clock::duration>(kConnectPause, deadline_ - Clock::now()));
    } while (Clock::now() < deadline_);
    give_up(rank, tried);
  }

  // The first rank that is not connected; 0: none. Lower ranks are connected already.
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
  std::shared_ptr<const ConnectionKeys> keys_;
  AwakeTime time_;
  Clock::time_point deadline_;
  std::vector<Card> cards_;
  Connections made_;
};

}  // namespace

Connections connect_all(const Rendezvous& rendezvous, const TcpOptions& options) {
  return Connecting(rendezvous, options).run();
}

}  // namespace gradwire::transport::tcp
