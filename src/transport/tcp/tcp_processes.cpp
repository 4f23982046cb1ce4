#include "transport/tcp/tcp_processes.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>

#include "base/forked.hpp"
#include "base/process_number.hpp"
#include "gradwire/error.hpp"
#include "transport/tcp/tcp_channel.hpp"
#include "transport/tcp/tcp_connect.hpp"
#include "transport/tcp/tcp_descriptors.hpp"
#include "transport/tcp/tcp_door.hpp"
#include "transport/tcp/tcp_join_file.hpp"
#include "transport/tcp/tcp_joining.hpp"
#include "transport/tcp/tcp_letters.hpp"
#include "transport/tcp/tcp_report_end.hpp"

namespace gradwire::transport {
namespace tcp {
namespace {

using Id = Processes::Id;
using State = Acquaintance::State;

// How each message begins.
constexpr std::byte kOfJob{0};   // what was given to send()
constexpr std::byte kHello{1};   // of one who joined, to each other: all have admitted it
constexpr std::byte kLetter{2};  // for a world that is being made
constexpr std::uint32_t kNowhere = UINT32_MAX;
constexpr std::size_t kOfProcess = 2;  // connections with each other process, beside those of a world
constexpr std::size_t kOfWorld = 2;
constexpr Id kMostMissed = 1000;  // ids that others have given to processes which ended before they came here

class TcpProcesses final : public Processes {
 public:
  /// With `listening` others may join.
  TcpProcesses(Seat seat, std::string interface, Card own_card, std::vector<Listener> listening,
               std::function<void()> on_loss = {})
      : self_(seat.self),
        start_(seat.start),
        interface_(std::move(interface)),
        on_loss_(std::move(on_loss)),
        own_{.id = seat.self, .state = State::alive, .card = std::move(own_card), .name = std::move(seat.name)},
        channel_({}) {
    number_process(self_);
    for (Seat::Other& other : seat.others) {
      const State state = other.who.state;
      meet(std::move(other.who), std::move(other.prompt), std::move(other.bulk)).known = true;
      if (other.who.id >= start_) {
        first_.push_back({.from = other.who.id, .came = true});
      }
      if (state == State::ended) {
        first_.push_back({.from = other.who.id, .ended = true});
      }
    }
    if (joined()) {
      for (auto& [id, peer] : peers_) {
        channel_.send(peer.prompt, {&kHello, 1});
      }
    }
    if (!listening.empty()) {
      door_.emplace(std::move(listening), Greeting{.nonce = own_.card.nonce, .rank = self_},
                    Door::Host{.turn = [this] { return turn(); },
                               .admit = [this](Door::Guest guest) { admit(std::move(guest)); }});
    }
  }
  ~TcpProcesses() override { end(); }

  [[nodiscard]] Id self() const noexcept override { return self_; }
  [[nodiscard]] bool joined() const noexcept override { return self_ >= start_; }
  [[nodiscard]] std::vector<Id> all() const override {
    std::vector<Id> ids(start_);
    std::iota(ids.begin(), ids.end(), Id{0});
    return ids;
  }
  [[nodiscard]] bool open() const noexcept override { return door_.has_value(); }
  [[nodiscard]] std::vector<Id> newcomers() const override {
    const std::lock_guard lock(mutex_);
    std::vector<Id> ids;
    for (auto at = peers_.lower_bound(start_); at != peers_.end(); ++at) {
      if (at->second.known) {
        ids.push_back(at->first);
      }
    }
    return ids;
  }
  [[nodiscard]] std::string describe(Id who) const override {
    const std::lock_guard lock(mutex_);
    return describe_locked(who);
  }

  using Processes::send;
  void send(Id to, std::span<const std::byte> message, Lane lane) noexcept override { send(to, kOfJob, message, lane); }
  [[nodiscard]] std::uint64_t unsent(Id to, Lane lane) const noexcept override {
    const auto socket = socket_of(to, lane);
    return socket ? channel_.unsent(*socket) : 0;
  }
  [[nodiscard]] std::vector<Heard> hear(std::chrono::milliseconds wait) override;
  void wake() noexcept override { channel_.wake(); }
  void note_loss() noexcept override {
    if (on_loss_) {
      on_loss_();
    }
  }
  void note_no_place() noexcept override { this_process_had_no_place(); }
  void end() noexcept override {
    letters_.close();
    if (door_) {
      door_->close();
    }
    channel_.end();
  }
  [[nodiscard]] std::shared_ptr<Transport> connect(std::span<const Id> members, std::uint32_t epoch,
                                                   std::chrono::milliseconds timeout) override;

 private:
  struct Peer {
    Acquaintance who;
    std::uint32_t prompt = kNowhere;  // numbers of connections
    std::uint32_t bulk = kNowhere;
    int ended_lanes = 0;
    bool known = false;  // to whoever asks: it is here since the start, or has said hello
  };

  Peer& meet(Acquaintance who, Socket prompt, Socket bulk);
  void send(Id to, std::byte mark, std::span<const std::byte> message, Lane lane) noexcept;
  [[nodiscard]] std::optional<std::uint32_t> socket_of(Id who, Lane lane) const noexcept;
  [[nodiscard]] std::string describe_locked(Id who) const;
  void take(Channel::Heard one, std::vector<Heard>& heard);
  // Of the door's thread.
  [[nodiscard]] Turn turn() const;
  void admit(Door::Guest guest);
  /// Throws where a world of these cannot be made any more.
  void look_at(std::span<const Id> members) const;

  const Id self_;
  const Id start_;
  const std::string interface_;
  const std::function<void()> on_loss_;
  const Acquaintance own_;
  Channel channel_;
  Letters letters_;
  mutable std::mutex mutex_;  // of what follows
  std::map<Id, Peer> peers_;
  std::vector<Id> of_socket_;  // whose it is, by the channel's number
  std::vector<Heard> first_;   // to be heard before anything else
  std::optional<Door> door_;   // the last one: it calls this object
};

TcpProcesses::Peer& TcpProcesses::meet(Acquaintance who, Socket prompt, Socket bulk) {
  const Id id = who.id;
  of_socket_.reserve(of_socket_.size() + 2);
  Peer& peer = peers_[id];
  peer.who = std::move(who);
  if (!prompt.valid() || !bulk.valid()) {
    return peer;
  }
  try {
    peer.prompt = channel_.add(std::move(prompt));
    of_socket_.push_back(id);
    peer.bulk = channel_.add(std::move(bulk));
    of_socket_.push_back(id);
  } catch (...) {  // no memory: as if it had never been here
    peers_.erase(id);
    std::ranges::replace(of_socket_, id, kNowhere);
    throw;
  }
  return peer;
}

std::optional<std::uint32_t> TcpProcesses::socket_of(Id who, Lane lane) const noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(who);
  if (found == peers_.end()) {
    return std::nullopt;
  }
  return lane == Lane::prompt ? found->second.prompt : found->second.bulk;
}

void TcpProcesses::send(Id to, std::byte mark, std::span<const std::byte> message, Lane lane) noexcept {
  try {
    if (const auto socket = socket_of(to, lane)) {
      std::vector<std::byte> marked{mark};
      marked.insert(marked.end(), message.begin(), message.end());
      channel_.send(*socket, marked);
    }
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): lost, as the contract says
  }
}

std::string TcpProcesses::describe_locked(Id who) const {
  if (who == self_) {
    return own_.name;
  }
  const auto found = peers_.find(who);
  return found == peers_.end() || found->second.who.name.empty() ? "process " + std::to_string(who)
                                                                 : found->second.who.name;
}

std::vector<Processes::Heard> TcpProcesses::hear(std::chrono::milliseconds wait) {
  std::vector<Heard> heard;
  {
    const std::lock_guard lock(mutex_);
    heard = std::exchange(first_, {});
  }
  for (Channel::Heard& one : channel_.hear(heard.empty() ? wait : std::chrono::milliseconds(0))) {
    take(std::move(one), heard);
  }
  return letters_.closed() ? std::vector<Heard>() : heard;
}

void TcpProcesses::take(Channel::Heard one, std::vector<Heard>& heard) {
  const std::lock_guard lock(mutex_);
  if (letters_.closed()) {
    return;  // it has closed the connections itself: nobody has ended
  }
  const Id from = of_socket_.at(one.from);
  const auto found = peers_.find(from);
  if (found == peers_.end()) {
    return;
  }
  Peer& peer = found->second;
  if (one.lost) {
    peer.who.state = State::unreachable;
    if (peer.known) {
      heard.push_back({.from = from, .lost = true});
    }
  } else if (one.ended) {
    if (++peer.ended_lanes < 2) {  // behind all that it sent
      return;
    }
    peer.who.state = State::ended;
    letters_.look();
    if (peer.known) {
      heard.push_back({.from = from, .ended = true});
    }
  } else if (!one.message.empty()) {
    if (!std::exchange(peer.known, true)) {
      heard.push_back({.from = from, .came = true});
    }
    const std::byte mark = one.message.front();
    if (mark == kOfJob) {
      one.message.erase(one.message.begin());
      heard.push_back({.from = from, .message = std::move(one.message)});
    } else if (mark == kLetter) {
      letters_.put(std::span(one.message).subspan(1));
    }
  }
}

Turn TcpProcesses::turn() const {
  const std::lock_guard lock(mutex_);
  Turn turn{.start = start_, .highest = self_, .known = {own_}};
  for (const auto& [id, peer] : peers_) {
    turn.highest = std::max(turn.highest, id);
    turn.known.push_back(peer.who);  // also one that ended before it had joined: others may not have heard yet
  }
  return turn;
}

// It says hello once all others have admitted it, too: so who hears of it knows that they can reach it.
void TcpProcesses::admit(Door::Guest guest) {
  const std::lock_guard lock(mutex_);
  const Id highest = std::max(self_, peers_.empty() ? self_ : peers_.rbegin()->first);
  if (letters_.closed() || guest.who.id <= highest || guest.who.id > highest + kMostMissed) {
    return;
  }
  const Peer& peer = meet(std::move(guest.who), std::move(guest.prompt), std::move(guest.bulk));
  channel_.send(peer.prompt, std::as_bytes(std::span(kAdmitted)));
}

void TcpProcesses::look_at(std::span<const Id> members) const {
  const std::lock_guard lock(mutex_);
  for (const Id who : members) {
    const auto found = peers_.find(who);
    if (who != self_ && (found == peers_.end() || found->second.who.state == State::ended)) {
      throw Error(ErrorCode::transport, describe_locked(who) +
                                            (found == peers_.end() ? " is not known here" : " has ended") +
                                            ", so that no world with it can be made");
    }
  }
}

std::shared_ptr<Transport> TcpProcesses::connect(std::span<const Id> members, std::uint32_t epoch,
                                                 std::chrono::milliseconds timeout) {
  const auto at = std::lower_bound(members.begin(), members.end(), self_);
  if (at == members.end() || *at != self_) {
    throw Error(ErrorCode::invalid_argument, "connect: process " + std::to_string(self_) + " is not a member");
  }
  std::string world;  // of all that are made in an epoch, should they be several
  for (const Id who : members) {
    world += std::to_string(who) + ",";
  }
  letters_.begin(epoch);
  const auto go_on = [&] {
    letters_.look_at(epoch);
    look_at(members);
  };
  const Rendezvous rendezvous{
      .put =
          [&](const std::string& key, const std::string& value) {
            const auto letter = Letters::write(epoch, world + key, value);
            for (const Id who : members) {
              if (who != self_) {
                send(who, kLetter, letter, Lane::prompt);
              }
            }
          },
      .get =
          [&](const std::string& key, std::chrono::milliseconds limit) {
            std::size_t rank = members.size();  // keys end in their sender's
            const bool known = read_number(std::string_view(key).substr(key.rfind('/') + 1), rank);
            const std::string sender = known && rank < members.size() ? describe(members[rank]) : key;
            return letters_.get(epoch, world + key, sender, limit, go_on);
          }};
  const TcpOptions options{.rank = static_cast<int>(at - members.begin()),
                           .world_size = static_cast<int>(members.size()),
                           .interface = interface_,
                           .timeout = timeout,
                           .go_on = go_on};
  auto transport = make_tcp(rendezvous, options);
  letters_.forget(epoch);
  return transport;
}

std::string introduction_key(int rank) { return "tcp/process/" + std::to_string(rank); }

// What each rank leaves for the others: how it can be joined, or why it cannot.
constexpr std::string_view kProblem = "problem ";

std::vector<Acquaintance> introduce(const Rendezvous& rendezvous, const TcpOptions& options, const Card& card,
                                    const std::string& problem) {
  const Acquaintance own{.id = static_cast<Id>(options.rank),
                         .state = State::alive,
                         .card = card,
                         .name = "rank " + std::to_string(options.rank) + " (" + process_name() + ")"};
  rendezvous.put(introduction_key(options.rank), problem.empty() ? own.to_text() : std::string(kProblem) + problem);
  std::vector<Acquaintance> all;
  for (int rank = 0; rank < options.world_size; ++rank) {
    if (rank == options.rank) {
      all.push_back(own);
      continue;
    }
    const std::string text = rendezvous.get(introduction_key(rank), options.timeout);
    if (text.starts_with(kProblem)) {
      throw Error(ErrorCode::invalid_argument, text.substr(kProblem.size()));
    }
    auto read = Acquaintance::from_text(text);
    if (!read) {
      throw Error(ErrorCode::mismatch, "rank " + std::to_string(rank) + " says what no process does (" +
                                           text.substr(0, 80) + "); do all ranks run the same version of gradwire?");
    }
    all.push_back(std::move(*read));
  }
  return all;
}

}  // namespace
}  // namespace tcp

std::shared_ptr<Processes> make_tcp_processes(const Rendezvous& rendezvous, const TcpOptions& options,
                                              const std::string& join_file, std::function<void()> on_loss) {
  using tcp::Acquaintance;
  std::optional<Error> problem;
  std::optional<tcp::JoinFileClaim> claim;
  tcp::Listening listening;
  try {
    const std::size_t others = static_cast<std::size_t>(options.world_size) - 1;
    tcp::check_descriptors(others, tcp::kOfProcess + tcp::kOfWorld, "rank " + std::to_string(options.rank) + ": ");
    if (!join_file.empty()) {
      if (options.rank == 0) {
        claim.emplace(join_file);
      }
      listening = tcp::listen_on(tcp::addresses_for(options.interface, false), "for processes that join: ");
    }
  } catch (const Error& error) {
    problem = error;  // the others are to know it, too
  }
  std::vector<Acquaintance> all =
      tcp::introduce(rendezvous, options, listening.card, problem ? problem->what() : std::string());
  if (problem) {
    throw Error(*problem);
  }
  tcp::Connections made = tcp::connect_all(rendezvous, options);
  tcp::Seat seat{.self = static_cast<Processes::Id>(options.rank),
                 .start = static_cast<Processes::Id>(options.world_size),
                 .name = all.at(static_cast<std::size_t>(options.rank)).name,
                 .others = {}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i != seat.self) {
      seat.others.push_back(
          {.who = all[i], .prompt = std::move(made.peers[i].control), .bulk = std::move(made.peers[i].messages)});
    }
  }
  auto processes = make_shared_at_home<tcp::TcpProcesses>(std::move(seat), options.interface, std::move(listening.card),
                                                          std::move(listening.listeners), std::move(on_loss));
  if (!join_file.empty() && options.rank == 0) {
    tcp::write_join_file(join_file, all);
  }
  return processes;
}

std::shared_ptr<Processes> join_tcp_processes(const JoinOptions& options) {
  tcp::Seat seat = tcp::find_seat(options);
  tcp::Listening listening = std::move(seat.listening);
  const tcp::Acquaintance own{.id = seat.self, .state = {}, .card = listening.card, .name = {}};
  auto processes = make_shared_at_home<tcp::TcpProcesses>(std::move(seat), options.interface, std::move(listening.card),
                                                          std::move(listening.listeners));
  tcp::append_to_join_file(options.join_file, own);
  return processes;
}

}  // namespace gradwire::transport
