#include "session/elastic/member.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <utility>

#include "base/awake_time.hpp"
#include "base/log.hpp"
#include "base/units.hpp"
#include "membership/message.hpp"
#include "plan/plan.hpp"

namespace gradwire::session {
namespace {

// Who leaves at the end of a job is followed by the others within this time, and needs no agreement.
constexpr std::chrono::milliseconds kFarewell{300};

// After which one that joins says why it is not in yet.
constexpr std::chrono::seconds kSilentWait{10};

// How messages begin that are none of membership, of which none begins so.
constexpr std::byte kCopyMark{0xC0};  // epoch, step, bytes of the copy, bytes of it before this piece, and the piece
constexpr std::byte kFarewellMark{0xC1};  // whether all ranks of the start are in the world
constexpr std::byte kFactsMark{0xC2};     // of a process that waits: a text
constexpr std::byte kRefusalMark{0xC3};   // of such a one: why, a text
constexpr std::byte kSparesMark{0xC4};    // how many the policy of this process has
constexpr std::size_t kPieceBytes = 256 << 10;

wire::Bytes with_text(std::byte mark, const std::string& text) {
  wire::Bytes message{mark};
  wire::put(message, text.data(), text.size());
  return message;
}

std::string text_of(std::span<const std::byte> message) {
  return {reinterpret_cast<const char*>(message.data()) + 1, message.size() - 1};
}

membership::World first_world(const Processes& processes, const membership::Settings& settings) {
  std::vector<Processes::Id> members = processes.all();
  members.resize(members.size() - settings.spares.size());
  const bool is_member = std::ranges::find(members, processes.self()) != members.end();
  return is_member ? membership::World{.epoch = 1, .members = std::move(members)} : membership::World{};
}

}  // namespace

Member::Member(std::shared_ptr<Processes> processes, const membership::Settings& settings)
    : processes_(std::move(processes)),
      settings_(settings),
      machine_(processes_->self(), first_world(*processes_, settings), 0, settings, now()) {
  wire::Bytes message{kSparesMark};
  wire::put_number(message, static_cast<std::uint32_t>(settings_.spares.size()));
  for (const Processes::Id who : processes_->joined() ? std::vector<Processes::Id>() : others()) {
    processes_->send(who, message);
  }
  thread_ = std::thread([this] { run(); });
}

Member::~Member() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    interrupt_ = nullptr;
  }
  processes_->wake();
  thread_.join();
  if (!failed_ && std::uncaught_exceptions() <= exceptions_) {
    // Before the machine's last words, of which the next world comes: who is in it knows then why.
    const std::array farewell{kFarewellMark, std::byte{static_cast<std::uint8_t>(lacks_a_rank_of_the_start() ? 0 : 1)}};
    for (const membership::Id who : others()) {
      processes_->send(who, farewell);
    }
  }
  machine_.leave();
  act();
  processes_->end();
}

bool Member::at_start(Processes::Id who) const {
  return std::ranges::find(settings_.start, who) != settings_.start.end();
}

bool Member::lacks_a_rank_of_the_start() const {
  const std::vector<membership::Id>& members = machine_.world().members;
  return !members.empty() && std::ranges::any_of(settings_.start, [&](Processes::Id who) {
    const bool is_spare = std::ranges::find(settings_.spares, who) != settings_.spares.end();
    return !is_spare && !std::binary_search(members.begin(), members.end(), who);
  });
}

std::vector<Processes::Id> Member::others() const {
  std::vector<Processes::Id> found = settings_.start;
  std::ranges::copy(processes_->newcomers(), std::back_inserter(found));
  std::erase(found, processes_->self());
  return found;
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
        note_end(at->first);
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
  if (heard.came || heard.lost) {
    if (heard.lost) {
      lost_.insert(heard.from);
    }
    return say_to_all_that_it_waits();
  }
  if (heard.ended) {
    if (!farewells_.contains(heard.from) && !ended_.contains(heard.from)) {
      note_loss_of(heard.from);
      note_end(heard.from);
    }
    return;
  }
  switch (heard.message.empty() ? std::byte{0} : heard.message.front()) {
    case kFarewellMark:
      farewells_[heard.from] = Clock::now() + kFarewell;
      left_.insert(heard.from);
      if (heard.message.back() == std::byte{0}) {
        processes_->note_loss();
      }
      break;
    case kCopyMark: hear_copy(heard.from, heard.message); break;
    case kFactsMark: hear_facts(heard.from, text_of(heard.message)); break;
    case kRefusalMark: refused_ = Error(ErrorCode::mismatch, text_of(heard.message)); break;
    case kSparesMark: hear_number_of_spares(heard.from, heard.message); break;
    default: try { machine_.receive(membership::decode(heard.message), now());
      } catch (const Error&) {
        machine_.missed(heard.from, now());  // it says what no member would
      }
  }
}

void Member::note_end(Processes::Id who) {
  ended_.insert(who);
  facts_.erase(who);
  const std::vector<membership::Id>& members = machine_.world().members;
  if (!members.empty() && !std::binary_search(members.begin(), members.end(), who)) {
    note_loss_of(who);  // a spare, which would have stayed until the job ends
  }
  machine_.dead(who, now());
}

// The launcher waits for no others.
void Member::note_loss_of(Processes::Id who) {
  if (at_start(who)) {
    processes_->note_loss();
  }
}

// To those that can be reached: others that never end must not keep it from seeing that nobody is left.
void Member::say_to_all_that_it_waits() {
  if (says_.empty()) {
    return;
  }
  std::vector<Processes::Id> reached = others();
  std::erase_if(reached, [&](Processes::Id who) { return lost_.contains(who); });
  for (const Processes::Id who : reached) {
    if (told_facts_.insert(who).second) {
      processes_->send(who, with_text(kFactsMark, says_));
    }
  }
  machine_.wait_among(std::move(reached));
}

// One that joins says it with its facts, and alone has to go where it is another number.
void Member::hear_number_of_spares(Processes::Id from, std::span<const std::byte> message) {
  const std::size_t mine = settings_.spares.size();
  std::uint32_t theirs = 0;
  if (message.size() == 1 + sizeof(theirs)) {
    std::memcpy(&theirs, message.data() + 1, sizeof(theirs));
    if (theirs != mine) {
      refused_ =
          Error(ErrorCode::mismatch, "[elastic] spares is " + std::to_string(mine) + " on " +
                                         processes_->describe(processes_->self()) + " and " + std::to_string(theirs) +
                                         " on " + processes_->describe(from) + "; give all processes the same policy");
    }
  }
}

void Member::hear_facts(Processes::Id from, const std::string& facts) {
  facts_[from] = facts;
  if (own_facts_.empty()) {
    return;  // later
  }
  if (facts == own_facts_) {
    machine_.let_in(from);
    return;
  }
  const std::string why = (at_start(from) ? "a spare, " : "") + processes_->describe(from) +
                          ", cannot be a rank: " + plan::first_difference(own_facts_, "the job", facts, "it");
  if (machine_.world().members.front() == machine_.self()) {
    log(LogLevel::warning, why);
  }
  processes_->send(from, with_text(kRefusalMark, why));  // by all: any of them may be stopped, or end
}

void Member::let_in(std::string facts) {
  const std::lock_guard lock(mutex_);
  own_facts_ = std::move(facts);
  for (const auto& [who, said] : std::exchange(facts_, {})) {
    hear_facts(who, said);
  }
}

bool Member::wait_for_place(const std::string& facts) {
  std::unique_lock lock(mutex_);
  says_ = facts;
  say_to_all_that_it_waits();
  const auto is_over = [&] { return over_locked(0) || machine_.alone(); };
  for (int reports = 0; !changed_.wait_for(lock, reports == 0 ? kSilentWait : 6 * kSilentWait, is_over); ++reports) {
    say_who_keeps_it_out();
  }
  if (!over_locked(0)) {
    if (!lost_.empty()) {
      log(LogLevel::warning, "the way to " + std::to_string(lost_.size()) +
                                 " processes is broken, and nobody else is left: this process ends without a place");
    }
    processes_->note_no_place();
    return false;
  }
  throw_if_out();
  return true;
}

// A spare waits for others to end, which is no news.
void Member::say_who_keeps_it_out() const {
  if (at_start(machine_.self())) {
    return;
  }
  std::string names;
  for (const Processes::Id who : machine_.unaware()) {
    names += (names.empty() ? "" : ", ") + processes_->describe(who);
  }
  log(LogLevel::warning,
      names.empty() ? "this process waits to be a rank: the others have not come to share(), or make no steps"
                    : "this process waits to be a rank: all that have not ended must know of it, and these have not "
                      "said so: " +
                          names + "; where one of them is stopped, end it");
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
    if (epoch < copies_from_) {
      incoming_.erase(from);
      return;
    }
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

void Member::forget_copies_before(std::uint32_t epoch) {
  const std::lock_guard lock(mutex_);
  copies_from_ = std::max(copies_from_, epoch);
  const auto is_old = [&](const auto& copy) { return copy.second.epoch < copies_from_; };
  std::erase_if(copies_, is_old);
  std::erase_if(incoming_, is_old);
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
  return machine_.agreeing() || machine_.expelled() || machine_.world().epoch != epoch || refused_;
}

double Member::seconds_since_over() const {
  const std::lock_guard lock(mutex_);
  return std::chrono::duration<double>(Clock::now() - over_since_).count();
}

Member::World Member::world() const {
  const std::lock_guard lock(mutex_);
  throw_if_out();
  return machine_.world();
}

void Member::throw_if_out() const {
  if (refused_) {
    throw Error(*refused_);
  }
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
    return machine_.delivered() >= transaction || machine_.expelled() || machine_.world().epoch != epoch || refused_;
  };
  if (!wait_awake(changed_, lock, limit, decided)) {
    for (const membership::Id who : machine_.unready()) {
      machine_.missed(who, now());
    }
    act();
    if (!wait_awake(changed_, lock, limit, decided)) {
      gave_up_ = true;
      throw_no_agreement(limit);
    }
  }
  return machine_.delivered() >= transaction;
}

bool Member::await_change(std::uint32_t epoch, std::chrono::milliseconds patience, std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  const auto is_over = [&] { return over_locked(epoch); };
  const auto changed = [&] { return machine_.expelled() || machine_.world().epoch != epoch || refused_; };
  if (gave_up_ || !wait_awake(changed_, lock, patience, is_over)) {
    return false;
  }
  if (!wait_awake(changed_, lock, limit, changed)) {
    throw_no_agreement(limit);
  }
  throw_if_out();
  return true;
}

void Member::throw_no_agreement(std::chrono::milliseconds limit) const {
  throw Error(ErrorCode::timeout, processes_->describe(processes_->self()) + ": no agreement on who goes on within " +
                                      format_duration(limit) + "; waited for processes " + machine_.waits_for() +
                                      ". Fewer than half of the ranks are reached where a network has come apart");
}

}  // namespace gradwire::session
