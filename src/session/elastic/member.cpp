#include "session/elastic/member.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/units.hpp"
#include "membership/message.hpp"

namespace gradwire::session {
namespace {

// Who leaves at the end of a job is followed by the others within this time, and needs no agreement.
constexpr std::chrono::milliseconds kFarewell{300};
constexpr std::array kFarewellText{std::byte{'f'}};  // no message of membership is so short

// A piece of a copy: this byte, which no message of membership begins with, epoch, step, bytes of the copy, bytes of it
// before this piece, and the piece.
constexpr std::byte kCopyMark{0xC0};
constexpr std::size_t kPieceBytes = 256 << 10;

}  // namespace

Member::Member(std::shared_ptr<Processes> processes, membership::Settings settings)
    : processes_(std::move(processes)),
      settings_(settings),
      machine_(processes_->self(), {.epoch = 1, .members = processes_->all()}, 0, settings, now()),
      thread_([this] { run(); }) {}

Member::~Member() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    interrupt_ = nullptr;
  }
  processes_->wake();
  thread_.join();
  machine_.leave();
  act();
  for (const membership::Id who : machine_.world().members) {
    if (who != machine_.self()) {
      processes_->send(who, kFarewellText);
    }
  }
  processes_->end();
}

membership::Time Member::now() { return std::chrono::duration_cast<membership::Time>(Clock::now().time_since_epoch()); }

void Member::run() noexcept {
  for (;;) {
    const std::vector<Processes::Heard> heard = processes_->hear(settings_.beat / 2);
    const std::lock_guard lock(mutex_);
    if (stopping_) {
      return;
    }
    for (const Processes::Heard& one : heard) {
      hear(one);
    }
    for (auto at = farewells_.begin(); at != farewells_.end();) {
      if (Clock::now() >= at->second) {
        machine_.dead(at->first, now());
        at = farewells_.erase(at);
      } else {
        ++at;
      }
    }
    machine_.tick(now());
    act();
  }
}

void Member::hear(const Processes::Heard& heard) {
  if (heard.ended) {
    if (!farewells_.contains(heard.from)) {
      machine_.dead(heard.from, now());
    }
  } else if (std::ranges::equal(heard.message, kFarewellText)) {
    farewells_[heard.from] = Clock::now() + kFarewell;
  } else if (!heard.message.empty() && heard.message.front() == kCopyMark) {
    hear_copy(heard.from, heard.message);
  } else {
    try {
      machine_.receive(membership::decode(heard.message), now());
    } catch (const Error&) {
      machine_.missed(heard.from, now());  // it says what no member would
    }
  }
}

// Pieces come in order; what is none is dropped, and the copy with it.
void Member::hear_copy(Processes::Id from, std::span<const std::byte> message) {
  try {
    wire::ByteReader in(message.subspan(1), "a piece of a copy");
    const auto epoch = in.number<std::uint32_t>();
    const auto step = in.number<std::uint64_t>();
    const auto total = in.number<std::uint64_t>();
    const auto before = in.number<std::uint64_t>();
    const auto piece = in.take(in.left());
    Copy& copy = incoming_[from];
    if (before == 0) {
      copy = {.epoch = epoch, .step = step, .bytes = {}};
    }
    if (copy.epoch != epoch || copy.step != step || copy.bytes.size() != before) {
      in.fail("it comes out of order");
    }
    copy.bytes.insert(copy.bytes.end(), piece.begin(), piece.end());
    if (copy.bytes.size() >= total) {
      copies_[from] = std::move(copy);
      incoming_.erase(from);
    }
  } catch (...) {  // no piece, or no memory for it
    incoming_.erase(from);
  }
}

bool Member::send_copy(Processes::Id keeper, const Copy& copy) {
  if (processes_->unsent(keeper, Processes::Lane::bulk) > 0) {
    return false;
  }
  std::size_t at = 0;
  do {
    const std::size_t size = std::min(kPieceBytes, copy.bytes.size() - at);
    wire::Bytes piece{kCopyMark};
    wire::put_number(piece, copy.epoch);
    wire::put_number(piece, copy.step);
    wire::put_number(piece, static_cast<std::uint64_t>(copy.bytes.size()));
    wire::put_number(piece, static_cast<std::uint64_t>(at));
    wire::put(piece, copy.bytes.data() + at, size);
    processes_->send(keeper, piece, Processes::Lane::bulk);
    at += size;
  } while (at < copy.bytes.size());
  return true;
}

std::optional<Member::Copy> Member::take_copy(Processes::Id of, std::uint32_t epoch) {
  const std::lock_guard lock(mutex_);
  const auto found = copies_.find(of);
  if (found == copies_.end() || found->second.epoch != epoch) {
    return std::nullopt;
  }
  Copy copy = std::move(found->second);
  copies_.erase(found);
  return copy;
}

void Member::act() {
  for (const membership::Membership::Outgoing& out : machine_.take_messages()) {
    processes_->send(out.to, membership::encode(out.message));
  }
  static_cast<void>(machine_.take_news());  // the machine's own state says the same
  if (interrupt_ && over_locked(watched_)) {
    over_since_ = Clock::now();
    std::exchange(interrupt_, nullptr)();
  }
  changed_.notify_all();
}

bool Member::over_locked(std::uint32_t epoch) const {
  return machine_.agreeing() || machine_.expelled() || machine_.world().epoch != epoch;
}

double Member::seconds_since_over() const {
  const std::lock_guard lock(mutex_);
  return std::chrono::duration<double>(Clock::now() - over_since_).count();
}

Member::World Member::world() const {
  const std::lock_guard lock(mutex_);
  throw_if_expelled();
  return machine_.world();
}

void Member::throw_if_expelled() const {
  if (machine_.expelled()) {
    throw Error(ErrorCode::expelled, processes_->describe(processes_->self()) +
                                         ": the others went on without this process, which did not answer for " +
                                         format_duration(settings_.silent_after) + " or more; it must end");
  }
}

void Member::watch(std::uint32_t epoch, std::function<void()> interrupt) {
  const std::lock_guard lock(mutex_);
  watched_ = epoch;
  interrupt_ = std::move(interrupt);
  act();
}

bool Member::commit(std::uint32_t epoch, std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  if (over_locked(epoch)) {
    return false;
  }
  const std::uint64_t transaction = machine_.delivered() + 1;
  machine_.ready(transaction);
  act();
  const auto decided = [&] {
    return machine_.delivered() >= transaction || machine_.expelled() || machine_.world().epoch != epoch;
  };
  if (!changed_.wait_for(lock, limit, decided)) {
    for (const membership::Id who : machine_.unready()) {
      machine_.missed(who, now());
    }
    act();
    if (!changed_.wait_for(lock, limit, decided)) {
      gave_up_ = true;
      throw_no_agreement(limit);
    }
  }
  return machine_.delivered() >= transaction;
}

bool Member::await_change(std::uint32_t epoch, std::chrono::milliseconds patience, std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  const auto is_over = [&] { return over_locked(epoch); };
  const auto changed = [&] { return machine_.expelled() || machine_.world().epoch != epoch; };
  if (gave_up_ || !changed_.wait_for(lock, patience, is_over)) {
    return false;
  }
  if (!changed_.wait_for(lock, limit, changed)) {
    throw_no_agreement(limit);
  }
  throw_if_expelled();
  return true;
}

void Member::throw_no_agreement(std::chrono::milliseconds limit) const {
  throw Error(ErrorCode::timeout, processes_->describe(processes_->self()) + ": no agreement on who goes on within " +
                                      format_duration(limit) + "; waited for processes " + machine_.waits_for() +
                                      ". Fewer than half of the ranks are reached where a network has come apart");
}

}  // namespace gradwire::session
