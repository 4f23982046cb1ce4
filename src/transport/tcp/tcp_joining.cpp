#include "transport/tcp/tcp_joining.hpp"

#include <poll.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "base/units.hpp"
#include "gradwire/error.hpp"
#include "transport/tcp/tcp_descriptors.hpp"
#include "transport/tcp/tcp_join_file.hpp"

namespace gradwire::transport::tcp {
namespace {

using Id = Processes::Id;
using State = Acquaintance::State;

constexpr std::chrono::milliseconds kBetweenAttempts{100};  // pause between two attempts
constexpr std::chrono::milliseconds kAttempt{4000};  // less than a turn, so that it gives up before it is dropped
constexpr std::chrono::seconds kPatience{30};        // wait while other joiners have their turns
constexpr std::chrono::milliseconds kAsk{1000};      // for a process that is only asked which ones have ended
constexpr int kFruitless = 4;  // attempts in a row without any answer; a busy process may not answer for 5 s

constexpr std::chrono::seconds kBetweenWords{30};

class Joining {
 public:
  explicit Joining(const JoinOptions& options)
      : options_(options),
        token_(kFirstToken + 1 + static_cast<std::uint32_t>(random_number() % (kEndOfTokens - kFirstToken - 1))),
        keys_(options.keys != nullptr ? options.keys : ConnectionKeys::of_job()),
        deadline_(Clock::now() + options.timeout) {}

  Seat run() {
    for (int fruitless = 0;;) {
      for (Acquaintance& process : read_join_file(options_.join_file)) {
        known_.try_emplace(process.id, std::move(process));
      }
      begin_attempt();
      if (!asked_) {
        ask_the_newest();
      }
      if (take_turns() && be_admitted()) {
        return seat();
      }
      fruitless = held_.empty() ? fruitless + 1 : 0;
      if (fruitless == kFruitless) {
        throw Error(ErrorCode::timeout,
                    "nobody of the " + std::to_string(known_.size()) + " processes in " + options_.join_file +
                        " answers (" + why_ +
                        "): the job has ended, or this host cannot reach it; start the job, which "
                        "writes the file anew, or join from a host in its network",
                    ErrorCause::world);
      }
      if (Clock::now() >= deadline_) {
        throw Error(ErrorCode::timeout,
                    "this process could not join the job of " + options_.join_file + " within " +
                        format_duration(options_.timeout) + ": " + why_,
                    ErrorCause::world);
      }
      tell_of_waiting();
      held_.clear();  // so that other joiners have their turns meanwhile
      std::this_thread::sleep_for(kBetweenAttempts);
    }
  }

 private:
  struct Held {
    Socket prompt;
    Socket bulk;
  };

  void begin_attempt() {
    doubtful_.clear();
    joined_.clear();
    highest_ = 0;
    // A new address: another joiner may wait at the address of the last attempt, and hold turns meanwhile.
    listening_ = listen_on(addresses_for(options_.interface, false), "to join: ");
    suppose_all(State::alive);
  }
  // Sets the state of all processes, except of those that have ended.
  void suppose_all(State state) {
    for (auto& [id, process] : known_) {
      process.state = process.state == State::ended ? State::ended : state;
    }
  }
  // The deadline of the present wait.
  [[nodiscard]] Clock::time_point until() const {
    return std::min(asks_until_.value_or(deadline_), held_.empty() ? Clock::now() + kPatience : attempt_ends_);
  }
  [[nodiscard]] std::string name_of(Id id) const {
    const std::string& name = known_.at(id).name;
    return name.empty() ? "process " + std::to_string(id) : name;
  }

  // Asks the process that most likely still runs, which is the newest, which others have ended. Ended processes stay in
  // the file, and something else that does not answer may listen at their ports now.
  void ask_the_newest() {
    const std::string why = why_;
    for (auto newest = known_.rbegin(); newest != known_.rend() && !asked_; ++newest) {
      if (newest->second.state == State::ended) {
        continue;
      }
      asks_until_ = Clock::now() + std::min<Clock::duration>(kAsk, options_.timeout / 4);
      if (const auto turn = take_turn(newest->first)) {
        asked_ = true;
        for (const Acquaintance& told : turn->known) {
          if (const auto known = known_.find(told.id); known != known_.end() && told.state == State::ended) {
            known->second.state = State::ended;
          }
        }
      }
    }
    asks_until_.reset();
    held_.clear();
    why_ = why;
  }

  // Takes the turns of all processes, in ascending order. False: one of them did not give its turn.
  bool take_turns() {
    for (auto& [id, process] : known_) {  // learn() may add processes behind this one
      if (process.state != State::alive) {
        continue;
      }
      if (Clock::now() >= deadline_) {
        return false;
      }
      const bool first = held_.empty();
      auto turn = take_turn(id);
      if (!turn && (first || (doubtful_.contains(id) && Clock::now() < until()))) {
        continue;  // other processes know whether it has ended
      }
      if (!turn || !learn(id, std::move(*turn))) {
        return false;
      }
    }
    return !held_.empty() && std::ranges::all_of(known_, [this](const auto& known) {
      return known.second.state != State::alive || held_.contains(known.first);
    });
  }

  // Waits until the socket can be read; false: nothing came in time.
  bool wait_for(const Socket& socket) {
    for (const auto end = until(); Clock::now() < end; tell_of_waiting()) {
      if (has_unread(socket)) {
        return true;
      }
      const auto step = std::chrono::ceil<std::chrono::milliseconds>(std::min(end, tells_at_) - Clock::now());
      pollfd entry{.fd = socket.fd(), .events = POLLIN, .revents = 0};
      if (poll(&entry, 1, static_cast<int>(std::max<std::int64_t>(step.count(), 0))) > 0) {
        return true;
      }
    }
    return false;
  }
  void tell_of_waiting() {
    if (const auto now = Clock::now(); now >= tells_at_) {
      tells_at_ = now + kBetweenWords;
      say(LogLevel::info, "this process waits to join the job of " + options_.join_file + ": " + why_);
    }
  }

  std::optional<Turn> take_turn(Id id) {
    Held lanes;
    const Acquaintance& process = known_.at(id);
    std::string before = std::exchange(why_, name_of(id) + " is busy with another process that joins, or is stopped");
    for (const bool control : {true, false}) {
      Socket& lane = control ? lanes.prompt : lanes.bulk;
      std::string tried;
      lane = process.card.reach(until(), {.rank = token_, .purpose = control ? 1U : 0U}, id, tried, keys_.get());
      if (!lane.valid()) {
        check_for_one_descriptor("to join: ");
        why_ = name_of(id) + " does not answer; where it is stopped, end it (" + tried + ")";
        return std::nullopt;
      }
      set_up(lane, Carries::lane);
      tell_of_waiting();  // it may have answered late
    }
    const auto said = wait_for(lanes.prompt) ? read_message(lanes.prompt, until()) : std::nullopt;
    auto turn = said ? Turn::from_text(*said) : std::nullopt;
    if (!turn) {
      why_ = name_of(id) + " is busy with another process that joins, or has ended";
      return std::nullopt;
    }
    why_ = std::move(before);
    if (held_.empty()) {
      attempt_ends_ = Clock::now() + kAttempt;
    }
    held_[id] = std::move(lanes);
    return turn;
  }

  // Updates the known processes from a turn. False: a living process that should have been asked before `from` was not.
  bool learn(Id from, Turn turn) {
    start_ = turn.start;
    highest_ = std::max(highest_, turn.highest);
    if (held_.size() == 1) {  // the first answer replaces the file's content
      suppose_all(State::unreachable);
    }
    bool in_order = true;
    for (Acquaintance& told : turn.known) {
      // Every living process knows all processes that have joined. If the first process, whose turn this one has, does
      // not know a process, the others know it only from a failed attempt to join.
      if (held_.size() == 1) {
        joined_.insert(told.id);
      } else if (!joined_.contains(told.id) && told.state != State::ended) {
        continue;
      }
      auto& process = known_.try_emplace(told.id, told).first->second;
      process.name = told.name;
      process.host = told.host;
      process.witness = told.witness;
      if (told.state == State::unreachable) {  // it may live, and its turn is then needed
        doubtful_.insert(told.id);
      }
      if (process.state != State::ended) {
        process.state = told.state == State::ended ? State::ended : State::alive;
      }
      in_order = in_order && (process.state != State::alive || told.id >= from || held_.contains(told.id) ||
                              doubtful_.contains(told.id));
    }
    return in_order;
  }

  bool be_admitted() {
    self_ = highest_ + 1;
    own_ = {.id = self_,
            .card = listening_.card,
            .name = process_name() + ", which joined",
            .host = host_identity(),
            .witness = {}};
    witnesses_ = std::make_shared<witness::Witnesses>(own_.card.nonce);
    own_.witness = witnesses_->name();
    const std::string introduction = own_.to_text();
    for (const auto& [id, lanes] : held_) {
      static_cast<void>(write_message(lanes.prompt, introduction, until()));  // if this fails there will be no answer
    }
    return std::ranges::all_of(held_, [this](const auto& held) {
      if (read_message(held.second.prompt, until()) == kAdmitted) {
        return true;
      }
      why_ = name_of(held.first) + " did not admit this process in time, or has ended";
      return false;
    });
  }

  Seat seat() {
    tell_where(listening_, keys_ != nullptr);
    Seat seat{.self = self_,
              .start = start_,
              .own = own_,
              .others = {},
              .listeners = std::move(listening_.listeners),
              .witnesses = std::move(witnesses_),
              .agent = {},
              .keys = keys_};
    for (auto& [id, process] : known_) {
      const auto held = held_.find(id);
      if (held == held_.end() && id >= start_ && process.state != State::ended) {
        continue;  // it is in the file, but no process knows it: it never joined
      }
      Held lanes = held == held_.end() ? Held() : std::move(held->second);
      seat.others.push_back(
          {.who = std::move(process), .prompt = std::move(lanes.prompt), .bulk = std::move(lanes.bulk)});
    }
    return seat;
  }

  const JoinOptions& options_;
  std::uint32_t token_;
  std::shared_ptr<const ConnectionKeys> keys_;
  Clock::time_point deadline_;
  Clock::time_point attempt_ends_;
  std::optional<Clock::time_point> asks_until_;
  bool asked_ = false;
  Listening listening_;
  std::map<Id, Acquaintance> known_;
  std::map<Id, Held> held_;  // processes whose turn this process has
  std::set<Id> joined_;      // processes that the first of them knows
  std::set<Id> doubtful_;    // processes that one of them cannot reach
  Id start_ = 0;
  Id highest_ = 0;
  Id self_ = 0;
  Acquaintance own_;
  std::shared_ptr<witness::Witnesses> witnesses_;
  std::string why_;
  Clock::time_point tells_at_ = Clock::now() + options_.first_word;
};

}  // namespace

Seat find_seat(const JoinOptions& options) { return Joining(options).run(); }

}  // namespace gradwire::transport::tcp
