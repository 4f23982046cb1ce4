#include "plugins/torch_c10d/call_watch.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "gradwire/error.hpp"

namespace gradwire::torch_c10d {
namespace {

using std::chrono::milliseconds;

// The store has one key for each way, which holds the latest call that some rank waits in. Older ones are overwritten,
// so the store never grows.
const char* key_of(CallWatch::Way way) { return way == CallWatch::Way::compressed ? "late/compressed" : "late/passed"; }

constexpr const char* kFound = "late/found";
std::string heard_key_of(int rank) { return "late/heard/" + std::to_string(rank); }

// The store's value of `key` at this moment; no value if it has none.
std::optional<std::string> look(const transport::Rendezvous& store, const std::string& key) {
  try {
    return store.get(key, milliseconds(0));
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::string words_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an error of an unknown type";
  }
}

CallWatch::Way other_than(CallWatch::Way way) {
  return way == CallWatch::Way::compressed ? CallWatch::Way::passed : CallWatch::Way::compressed;
}

}  // namespace

CallWatch::CallWatch(transport::Rendezvous store, const Options& options,
                     std::function<void(const std::string& why)> abort)
    : store_(std::move(store)), options_(options), abort_(std::move(abort)), thread_([this] { run(); }) {}

CallWatch::~CallWatch() { stop(); }

void CallWatch::stop() noexcept {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  stopping_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void CallWatch::check() const {
  const MutexLock lock(mutex_);
  if (!failure_.empty()) {
    throw Error(ErrorCode::mismatch, failure_);
  }
}

std::uint64_t CallWatch::begin(Way way, std::function<std::string()> describe,
                               std::function<void(const std::string& why)> fail) {
  check();
  const MutexLock lock(mutex_);
  calls_.emplace(next_, Call{way, Clock::now(), std::move(describe), std::move(fail)});
  return next_++;
}

void CallWatch::end(std::uint64_t number) noexcept {
  decltype(calls_)::node_type ended;  // its content is destroyed after the lock is released
  const MutexLock lock(mutex_);
  ended = calls_.extract(number);
}

// The first call of each way, if it is late. Calls behind it are left out, since they may only wait for it.
std::vector<CallWatch::Late> CallWatch::late_calls() const {
  const MutexLock lock(mutex_);
  std::vector<Late> late;
  std::array<bool, 2> seen{};
  for (const auto& [number, call] : calls_) {
    bool& known = seen[static_cast<std::size_t>(call.way)];
    if (!known && Clock::now() - call.begin >= options_.patience) {
      late.push_back({number, call.way, call.describe()});
    }
    known = true;
  }
  return late;
}

// Writes a late call to the store, and looks for ranks that wait in the same call the other way. Returns how the ranks
// differ, or an empty string.
std::string CallWatch::compare(const Late& mine) {
  const std::string here = "rank " + std::to_string(options_.rank) + ": " + mine.text;
  const std::string number = std::to_string(mine.number);
  store_.put(key_of(mine.way), number + " " + here);
  const std::optional<std::string> found = look(store_, key_of(other_than(mine.way)));  // no value: no rank waits there
  const std::size_t space = found ? found->find(' ') : std::string::npos;
  if (space == std::string::npos || found->substr(0, space) != number) {
    return {};
  }
  const std::string there = found->substr(space + 1);
  const bool compressed_here = mine.way == Way::compressed;
  return "ranks differ in reduction " + number + " of this process group: " + (compressed_here ? here : there) +
         ", which is compressed, but " + (compressed_here ? there : here) +
         ", which passes; give every rank tensors of the same size and type";
}

std::string CallWatch::told_of() const { return look(store_, kFound).value_or(""); }

// Tells the other ranks `why` through the store. Returns when all have read it, or when the time to wait for them is
// over.
void CallWatch::tell(const std::string& why) noexcept {
  constexpr milliseconds kPause{10};
  try {
    if (told_of().empty()) {
      store_.put(kFound, why);
    }
    note(why);
    static_cast<void>(told_of());  // put() may return before the store has the value; reading it back waits
    const Clock::time_point deadline = Clock::now() + options_.moment;
    for (int rank = 0; rank < options_.world_size; ++rank) {
      while (!look(store_, heard_key_of(rank))) {
        const MutexLock lock(mutex_);
        if (Clock::now() >= deadline ||
            stopping_.wait_for(mutex_, kPause, [this]() REQUIRES(mutex_) { return stop_; })) {
          return;
        }
      }
    }
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the store is gone, and nobody can be told
  }
}

// Keeps `why` on this rank and tells the others that it has it. So this rank can explain its errors even after the
// others have ended and the store is gone.
void CallWatch::note(const std::string& why) noexcept {
  try {
    {
      const MutexLock lock(mutex_);
      failure_ = why;
    }
    store_.put(heard_key_of(options_.rank), "1");
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the store is gone, and nobody can be told
  }
}

std::exception_ptr CallWatch::explained(std::exception_ptr error) noexcept {
  try {
    std::string why;
    {
      const MutexLock lock(mutex_);
      why = failure_;
    }
    if (why.empty()) {
      why = told_of();
      if (why.empty()) {
        return error;
      }
      note(why);
    }
    const std::string words = words_of(error);
    if (words.find(why) != std::string::npos) {
      return error;  // it contains `why` already
    }
    return std::make_exception_ptr(std::runtime_error("gradwire: " + why + " (" + words + ")"));
  } catch (...) {
    return error;
  }
}

void CallWatch::give_up(const std::string& why) {
  decltype(calls_) calls;
  {
    const MutexLock lock(mutex_);
    failure_ = why;
    calls = calls_;
  }
  abort_(why);
  for (const auto& [number, call] : calls) {
    if (call.fail) {
      call.fail(why);
    }
  }
}

void CallWatch::run() {
  constexpr milliseconds kShortest{1000};
  constexpr milliseconds kLongest{10000};  // a rank may be hours late, and a store has one thread for all ranks
  milliseconds pause = std::min(kShortest, options_.patience);
  std::optional<std::uint64_t> told;
  for (;;) {
    {
      const MutexLock lock(mutex_);
      if (stopping_.wait_for(mutex_, pause, [this]() REQUIRES(mutex_) { return stop_; })) {
        return;
      }
    }
    const std::vector<Late> late = late_calls();
    const bool again = !late.empty() && told == late.front().number;
    pause = again ? std::min(2 * pause, kLongest) : std::min(kShortest, options_.patience);
    told = late.empty() ? std::nullopt : std::optional(late.front().number);
    try {
      std::string why = late.empty() ? "" : told_of();
      for (std::size_t i = 0; i < late.size() && why.empty(); ++i) {
        why = compare(late[i]);
      }
      if (!why.empty()) {
        tell(why);
        give_up(why);
        return;
      }
    } catch (const std::exception&) {
      continue;  // the store is gone, as at the end of a job; waiting calls fail for other reasons then
    }
  }
}

}  // namespace gradwire::torch_c10d
