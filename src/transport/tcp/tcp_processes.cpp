#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "base/forked.hpp"
#include "base/mutex.hpp"
#include "base/process_number.hpp"
#include "gradwire/error.hpp"
#include "transport/tcp/tcp_door.hpp"
#include "transport/tcp/tcp_join_file.hpp"
#include "transport/tcp/tcp_letters.hpp"
#include "transport/tcp/tcp_links.hpp"
#include "transport/tcp/tcp_report_end.hpp"
#include "transport/tcp/tcp_seat.hpp"
#include "transport/tcp/tcp_transport.hpp"

namespace gradwire::transport::tcp {
namespace {

using Id = Processes::Id;
using State = Acquaintance::State;

// The first byte of each message.
constexpr std::byte kOfJob{0};    // a message of send()
constexpr std::byte kHello{1};    // from a process that joined to each other one: all have admitted it
constexpr std::byte kLetter{2};   // a letter for a world that is being made
constexpr Id kMostMissed = 1000;  // most ids of joiners that ended before this process heard of them

// Removes the join file where the last process of a job ends by itself.
class JoinFileEnd {
 public:
  JoinFileEnd(std::string file, const Acquaintance& own, std::shared_ptr<const ConnectionKeys> keys)
      : file_(std::move(file)), own_(own), keys_(std::move(keys)) {}
  JoinFileEnd(const JoinFileEnd&) = delete;
  JoinFileEnd& operator=(const JoinFileEnd&) = delete;
  ~JoinFileEnd() {
    if (!file_.empty()) {
      remove_join_file_if_last(file_, own_, keys_.get());
    }
  }

 private:
  std::string file_;
  Acquaintance own_;
  std::shared_ptr<const ConnectionKeys> keys_;
};

class TcpProcesses final : public Processes {
 public:
  TcpProcesses(Seat seat, bool open, std::string interface, std::function<void()> on_loss)
      : self_(seat.self),
        start_(seat.start),
        interface_(std::move(interface)),
        on_loss_(std::move(on_loss)),
        join_file_end_(std::move(seat.join_file), seat.own, seat.keys),
        keys_(seat.keys),
        own_(std::move(seat.own)),
        links_({.self = self_,
                .card = own_.card,
                .host = own_.host,
                .listeners = std::move(seat.listeners),
                .witnesses = std::move(seat.witnesses),
                .agent = std::move(seat.agent),
                .keys = std::move(seat.keys),
                .knock = open ? [this](Accepted accepted) { door_->knock(std::move(accepted)); }
                              : std::function<void(Accepted)>()}) {
    number_process(self_);
    highest_ = self_;
    for (Seat::Other& other : seat.others) {
      const State state = other.who.state;
      if (other.who.id >= start_) {
        first_.push_back({.from = other.who.id, .came = true});
      }
      if (state == State::ended) {
        first_.push_back({.from = other.who.id, .ended = true});
      } else {
        links_.meet(other.who, std::move(other.prompt), std::move(other.bulk));
      }
      add(std::move(other.who)).known = true;
    }
    if (joined()) {
      for (auto& [id, peer] : peers_) {
        links_.send(id, {&kHello, 1}, Lane::prompt);
      }
    }
    if (open) {
      door_.emplace(Door::Host{.turn = [this] { return turn(); },
                               .admit = [this](Door::Guest guest) { admit(std::move(guest)); }});
    }
    links_.start();
  }
  // The threads end first, since they call this object, each by a member of its own.
  ~TcpProcesses() override {
    end();
    links_.stop();
    door_.reset();
  }

  [[nodiscard]] Id self() const noexcept override { return self_; }
  [[nodiscard]] bool joined() const noexcept override { return self_ >= start_; }
  [[nodiscard]] std::vector<Id> all() const override {
    std::vector<Id> ids(start_);
    std::iota(ids.begin(), ids.end(), Id{0});
    return ids;
  }
  [[nodiscard]] bool open() const noexcept override { return door_.has_value(); }
  [[nodiscard]] std::vector<Id> newcomers() const override {
    const MutexLock lock(mutex_);
    std::vector<Id> ids;
    for (auto at = peers_.lower_bound(start_); at != peers_.end(); ++at) {
      if (at->second.known) {
        ids.push_back(at->first);
      }
    }
    return ids;
  }
  [[nodiscard]] std::string describe(Id who) const override {
    const MutexLock lock(mutex_);
    return describe_locked(who);
  }

  using Processes::send;
  void send(Id to, std::span<const std::byte> message, Lane lane) noexcept override { send(to, kOfJob, message, lane); }
  [[nodiscard]] std::uint64_t unsent(Id to, Lane lane) const noexcept override { return links_.unsent(to, lane); }
  [[nodiscard]] std::vector<Heard> hear(std::chrono::milliseconds wait) override;
  void wake() noexcept override { links_.wake(); }
  void enter(std::uint32_t epoch) noexcept override { links_.enter(epoch); }
  void count(std::uint64_t step) noexcept override { links_.count(step); }
  void leave_out(Id who) noexcept override {
    const MutexLock lock(mutex_);
    if (const auto found = peers_.find(who); found != peers_.end()) {
      found->second.left_out = true;
    }
  }
  void trust_resets() noexcept override { links_.trust_resets(); }
  [[nodiscard]] bool encrypted() const noexcept override { return keys_ != nullptr; }
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
    links_.end();
  }
  [[nodiscard]] std::shared_ptr<Transport> connect(std::span<const Id> members, std::uint32_t epoch,
                                                   std::chrono::milliseconds timeout) override;

 private:
  struct Peer {
    Acquaintance who;
    bool known = false;  // it takes part since the start, or has said hello
    bool left_out = false;
  };

  Peer& add(Acquaintance who) REQUIRES(mutex_);
  void send(Id to, std::byte mark, std::span<const std::byte> message, Lane lane) noexcept;
  [[nodiscard]] std::string describe_locked(Id who) const REQUIRES(mutex_);
  void take(Heard one, std::vector<Heard>& heard);
  // Called on the door's thread.
  [[nodiscard]] Turn turn() const;
  void admit(Door::Guest guest);
  /// Throws where a world of these members cannot be made any more.
  void look_at(std::span<const Id> members) const;

  const Id self_;
  const Id start_;
  const std::string interface_;
  const std::function<void()> on_loss_;
  const JoinFileEnd join_file_end_;  // after the listeners, which are closed then
  const std::shared_ptr<const ConnectionKeys> keys_;
  const Acquaintance own_;
  Letters letters_;
  mutable Mutex mutex_;
  std::map<Id, Peer> peers_ GUARDED_BY(mutex_);
  Id highest_ GUARDED_BY(mutex_) = 0;            // highest id that was ever given, as far as is known
  std::vector<Heard> first_ GUARDED_BY(mutex_);  // hear() returns these before anything else
  std::optional<Door> door_;
  Links links_;
};

TcpProcesses::Peer& TcpProcesses::add(Acquaintance who) {
  highest_ = std::max(highest_, who.id);
  Peer& peer = peers_[who.id];
  peer = Peer{.who = std::move(who)};
  return peer;
}

void TcpProcesses::send(Id to, std::byte mark, std::span<const std::byte> message, Lane lane) noexcept {
  try {
    std::vector<std::byte> marked{mark};
    marked.insert(marked.end(), message.begin(), message.end());
    links_.send(to, marked, lane);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): without memory send() may lose messages
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
    const MutexLock lock(mutex_);
    heard = std::exchange(first_, {});
  }
  for (Heard& one : links_.hear(heard.empty() ? wait : std::chrono::milliseconds(0))) {
    take(std::move(one), heard);
  }
  return letters_.closed() ? std::vector<Heard>() : heard;
}

void TcpProcesses::take(Heard one, std::vector<Heard>& heard) {
  const MutexLock lock(mutex_);
  const auto found = peers_.find(one.from);
  if (found == peers_.end()) {
    return;
  }
  Peer& peer = found->second;
  if (one.lost && !peer.known) {
    // The joiner has not said hello to this process, so it is in no world yet, and cannot get into one without that.
    links_.forget(one.from);
    peer.who.state = State::ended;
    return;
  }
  if (one.lost || one.back || one.ended) {
    peer.who.state = one.lost ? State::unreachable : one.back ? State::alive : State::ended;
    letters_.look();
    if (peer.known) {
      heard.push_back(std::move(one));
    }
    return;
  }
  if (one.message.empty()) {
    return;
  }
  if (!std::exchange(peer.known, true)) {
    heard.push_back({.from = one.from, .came = true});
  }
  const std::byte mark = one.message.front();
  if (mark == kOfJob) {
    one.message.erase(one.message.begin());
    heard.push_back(std::move(one));
  } else if (mark == kLetter) {
    letters_.put(std::span(one.message).subspan(1));
  }
}

Turn TcpProcesses::turn() const {
  const MutexLock lock(mutex_);
  Turn turn{.start = start_, .highest = highest_, .known = {own_}};
  for (const auto& [id, peer] : peers_) {
    turn.known.push_back(peer.who);  // also a joiner that ended before it had joined, which others may not know yet
    // For a joiner these count as ended, too: a process that was left out, and a joiner whose attempt failed, even if
    // hear() has not noticed that.
    if (peer.left_out || (!peer.known && links_.is_at_end(id))) {
      turn.known.back().state = State::ended;
    }
  }
  return turn;
}

// A joiner says hello after every process has admitted it. So a process that hears the hello knows that all can reach
// the joiner.
void TcpProcesses::admit(Door::Guest guest) {
  const MutexLock lock(mutex_);
  const Id id = guest.who.id;
  if (letters_.closed() || id <= highest_ || id > highest_ + kMostMissed) {
    return;
  }
  links_.meet(guest.who, {}, {});  // messages to it wait for its connections from here on
  add(std::move(guest.who));
  if (write_message(guest.prompt, std::string(kAdmitted), Clock::now())) {  // it is short, so there is room
    links_.give(id, std::move(guest.prompt), std::move(guest.bulk));
  } else {
    links_.forget(id);
    peers_.erase(id);
  }
}

void TcpProcesses::look_at(std::span<const Id> members) const {
  const MutexLock lock(mutex_);
  for (const Id who : members) {
    const auto found = peers_.find(who);
    if (who != self_ && (found == peers_.end() || found->second.who.state == State::ended)) {
      throw Error(ErrorCode::transport,
                  describe_locked(who) + (found == peers_.end() ? " is not known here" : " has ended") +
                      ", so that no world with it can be made",
                  ErrorCause::world);
    }
  }
}

std::shared_ptr<Transport> TcpProcesses::connect(std::span<const Id> members, std::uint32_t epoch,
                                                 std::chrono::milliseconds timeout) {
  const auto at = std::lower_bound(members.begin(), members.end(), self_);
  if (at == members.end() || *at != self_) {
    throw Error(ErrorCode::invalid_argument, "connect: process " + std::to_string(self_) + " is not a member");
  }
  std::string world;  // tells apart worlds of the same epoch
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
            std::size_t rank = members.size();  // keys end in their sender's rank
            const bool known = read_number(std::string_view(key).substr(key.rfind('/') + 1), rank);
            const std::string sender = known && rank < members.size() ? describe(members[rank]) : key;
            return letters_.get(epoch, world + key, sender, limit, go_on);
          }};
  const TcpOptions options{.rank = static_cast<int>(at - members.begin()),
                           .world_size = static_cast<int>(members.size()),
                           .interface = interface_,
                           .timeout = timeout,
                           .go_on = go_on,
                           .keys = keys_};
  auto transport = make_tcp(rendezvous, options);
  letters_.forget(epoch);
  return transport;
}

}  // namespace

std::shared_ptr<Processes> make_processes(Seat seat, bool open, std::string interface, std::function<void()> on_loss) {
  return make_shared_at_home<TcpProcesses>(std::move(seat), open, std::move(interface), std::move(on_loss));
}

}  // namespace gradwire::transport::tcp
