#include "elastic/member.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/awake_time.hpp"
#include "base/log.hpp"
#include "base/units.hpp"
#include "elastic/member_messages.hpp"
#include "membership/message.hpp"

namespace gradwire::session {
namespace {

// Who leaves at the end of a job is followed by the others within this time, and needs no agreement.
constexpr std::chrono::milliseconds kFarewell{300};

std::string text_of(wire::ByteReader& body, std::size_t most) {
  if (body.left() > most) {
    body.fail("it has a text of " + std::to_string(body.left()) + " bytes");
  }
  return std::string(wire::as_text(body.take(body.left())));
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
  enter(machine_.epoch_entered());
  wire::Bytes message{kSparesMark};
  wire::put_number(message, static_cast<std::uint32_t>(settings_.spares.size()));
  for (const Processes::Id who : processes_->joined() ? std::vector<Processes::Id>() : others()) {
    send_sealed(who, message);
  }
  thread_ = std::thread([this] { run(); });
}

Member::~Member() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    interrupt_ = nullptr;
  }
  processes_->wake();
  thread_.join();
  if (!failed_ && std::uncaught_exceptions() <= exceptions_) {
    // Before the machine's last words, of which the next world comes: who is in it knows then why.
    wire::Bytes farewell{kFarewellMark, std::byte{static_cast<std::uint8_t>(lacks_a_rank_of_the_start() ? 0 : 1)}};
    wire::put_number(farewell, entered_);
    wire::put_number(farewell, machine_.delivered());
    for (const membership::Id who : others()) {
      send_sealed(who, farewell);
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
    const MutexLock lock(mutex_);
    if (stopping_) {
      return;
    }
    for (const Processes::Heard& one : heard) {
      hear(one);
    }
    end_those_that_left();
    machine_.tick(now());
    act();
  }
}

void Member::end_those_that_left() {
  for (auto at = farewells_.begin(); at != farewells_.end();) {
    if (Clock::now() >= at->second.counts) {
      note_end(at->second.end);
      at = farewells_.erase(at);
    } else {
      ++at;
    }
  }
}

void Member::hear(const Processes::Heard& heard) {
  if (heard.ended) {
    hear_of_end(heard);
  } else if (heard.lost) {
    lost_.insert(heard.from);
    machine_.cut(heard.from, now());
  } else if (heard.back) {
    lost_.erase(heard.from);
    machine_.back(heard.from);
    told_facts_.erase(heard.from);  // they may have been lost
    say_to_all_that_it_waits();
  } else if (heard.came) {
    say_to_all_that_it_waits();
  } else {
    hear_message(heard);
  }
}

void Member::hear_of_end(const Processes::Heard& heard) {
  const membership::Ended end{heard.from, heard.epoch, heard.step};
  if (const auto left = farewells_.find(heard.from); left != farewells_.end()) {
    left->second.end.epoch = std::max(left->second.end.epoch, end.epoch);
    left->second.end.step = std::max(left->second.end.step, end.step);
  } else if (!ended_.contains(heard.from)) {
    note_loss_of(heard.from);
    note_end(end);
  }
}

// A message that was damaged on its way makes the step anew, as one that was lost would. One that came as it was sent
// and says what no member would is another matter.
void Member::hear_message(const Processes::Heard& heard) {
  std::span<const std::byte> body;
  try {
    body = membership::unseal(heard.message);
  } catch (const Error&) {
    return machine_.damaged(heard.from, now());
  }
  try {
    wire::ByteReader in(body.subspan(1), "a message of another process");
    switch (body.front()) {
      case kFarewellMark: return hear_farewell(heard.from, in);
      case kCopyMark: return hear_copy(heard.from, in);
      case kFactsMark: return hear_facts(heard.from, text_of(in, kMostFacts));
      case kRefusalMark: return hear_refusal(text_of(in, kMostRefusal));
      case kSparesMark: return hear_number_of_spares(heard.from, in);
      default: hear_of_world(heard.from, body);
    }
  } catch (const Error& error) {
    machine_.distrust(heard.from, error.what(), now());
  } catch (const std::bad_alloc&) {
    machine_.damaged(heard.from, now());
  }
}

void Member::hear_of_world(Processes::Id from, std::span<const std::byte> body) {
  const membership::Message message = membership::decode_body(body);
  if (message.from != from) {
    return machine_.distrust(from, "it says that it is " + processes_->describe(message.from), now());
  }
  machine_.receive(message, now());
}

void Member::hear_farewell(Processes::Id from, wire::ByteReader body) {
  const bool is_whole = body.number<std::uint8_t>() != 0;
  const auto epoch = body.number<std::uint32_t>();
  const auto step = body.number<std::uint64_t>();
  body.expect_end();
  farewells_.try_emplace(from, Farewell{Clock::now() + kFarewell, {from, epoch, step}});
  left_.insert(from);
  if (!is_whole) {
    processes_->note_loss();
  }
}

void Member::note_end(const membership::Ended& end) {
  const Processes::Id who = end.who;
  ended_.insert(who);
  facts_.erase(who);
  copies_.lose(who);
  if (!waits() && !is_member(who)) {
    note_loss_of(who);  // a spare, which would have stayed until the job ends
  }
  machine_.dead(end, now());
}

bool Member::is_member(Processes::Id who) const {
  const std::vector<membership::Id>& members = machine_.world().members;
  return std::binary_search(members.begin(), members.end(), who);
}

// The launcher waits for no others.
void Member::note_loss_of(Processes::Id who) {
  if (at_start(who)) {
    processes_->note_loss();
  }
}

void Member::send_sealed(Processes::Id to, std::span<const std::byte> body, Processes::Lane lane) noexcept {
  try {
    processes_->send(to, membership::seal(body), lane);
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): lost, as what cannot be sent
  }
}

void Member::take_copies_up_to(std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  copies_.take_up_to(bytes);
}

void Member::hear_copy(Processes::Id from, const wire::ByteReader& body) {
  is_member(from) ? copies_.hear(from, body) : copies_.lose(from);
}

bool Member::send_copy(Processes::Id keeper, const Copy& copy) {
  if (processes_->unsent(keeper, Processes::Lane::bulk) > 0) {
    return false;
  }
  std::size_t at = 0;
  do {
    wire::Bytes piece{kCopyMark};
    at += put_piece(piece, copy, at);
    send_sealed(keeper, piece, Processes::Lane::bulk);
  } while (at < copy.bytes.size());
  return true;
}

std::optional<Copy> Member::take_copy(Processes::Id of, std::uint32_t epoch) {
  const MutexLock lock(mutex_);
  return copies_.take(of, epoch);
}

void Member::forget_copies_before(std::uint32_t epoch) {
  const MutexLock lock(mutex_);
  copies_.forget_before(epoch);
}

// Whoever hears of a later world must be able to rely on it that the end of this process would tell of that world: so a
// process that joins is told behind it, and whoever was in the world before it.
void Member::act() {
  for (const membership::Membership::Outgoing& out : machine_.take_messages()) {
    enter(std::min(out.message.epoch, machine_.epoch_entered()));
    processes_->send(out.to, membership::encode(out.message));
  }
  enter(machine_.epoch_entered());
  for (const membership::News& news : machine_.take_news()) {  // of all else the machine's own state tells
    if (const auto* lied = std::get_if<membership::Distrusted>(&news)) {
      log(LogLevel::warning, processes_->describe(lied->who) + " says what no rank would, and is to go: " + lied->why);
    }
  }
  for (const membership::Id who : machine_.gone()) {
    if (left_out_.insert(who).second) {
      processes_->leave_out(who);
    }
  }
  if (interrupt_ && over_locked(watched_)) {
    over_since_ = Clock::now();
    std::exchange(interrupt_, nullptr)();
  }
  changed_.notify_all();
}

void Member::enter(std::uint32_t epoch) {
  if (epoch > entered_) {
    entered_ = epoch;
    processes_->enter(epoch);
  }
}

void Member::miss(std::uint32_t epoch, Processes::Id who) {
  const MutexLock lock(mutex_);
  if (!over_locked(epoch)) {  // else what broke may have been let go
    machine_.missed(who, now());
    act();
  }
}

bool Member::over_locked(std::uint32_t epoch) const {
  return machine_.agreeing() || machine_.expelled() || machine_.world().epoch != epoch || refused_;
}

double Member::seconds_since_over() const {
  const MutexLock lock(mutex_);
  return std::chrono::duration<double>(Clock::now() - over_since_).count();
}

Member::World Member::world() const {
  const MutexLock lock(mutex_);
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
  const MutexLock lock(mutex_);
  watched_ = epoch;
  interrupt_ = std::move(interrupt);
  act();
}

bool Member::commit(std::uint32_t epoch, std::chrono::milliseconds limit) {
  const MutexLock lock(mutex_);
  if (over_locked(epoch)) {
    return false;
  }
  const std::uint64_t transaction = machine_.delivered() + 1;
  machine_.ready(transaction);
  act();
  const auto is_decided = [&]() REQUIRES(mutex_) {
    return machine_.delivered() >= transaction || machine_.expelled() || machine_.world().epoch != epoch || refused_;
  };
  const auto decided = [&]() REQUIRES(mutex_) { return is_decided() || machine_.hopeless(); };
  if (!wait_awake(changed_, mutex_, limit, decided)) {
    for (const membership::Id who : machine_.unready()) {
      machine_.missed(who, now());
    }
    act();
    static_cast<void>(wait_awake(changed_, mutex_, limit, decided));
  }
  if (!is_decided()) {
    gave_up_ = true;
    throw_no_agreement();
  }
  return machine_.delivered() >= transaction;
}

bool Member::await_change(std::uint32_t epoch, std::chrono::milliseconds patience, std::chrono::milliseconds limit) {
  const MutexLock lock(mutex_);
  const auto is_over = [&]() REQUIRES(mutex_) { return over_locked(epoch); };
  const auto changed = [&]() REQUIRES(mutex_) {
    return machine_.expelled() || machine_.world().epoch != epoch || refused_;
  };
  if (gave_up_ || !wait_awake(changed_, mutex_, patience, is_over)) {
    return false;
  }
  static_cast<void>(
      wait_awake(changed_, mutex_, limit, [&]() REQUIRES(mutex_) { return changed() || machine_.hopeless(); }));
  if (!changed()) {
    throw_no_agreement();
  }
  throw_if_out();
  return true;
}

void Member::confirm(std::chrono::milliseconds limit) {
  const MutexLock lock(mutex_);
  throw_if_out();
  const std::uint64_t step = machine_.delivered();
  {
    const MutexUnlock meanwhile(mutex_);
    processes_->count(step);  // before anybody is asked: those that answer may end, and this process then
  }
  machine_.confirm(step);
  act();
  const auto counts = [&]() REQUIRES(mutex_) { return waits() || machine_.confirmed() >= step; };
  const auto over = [&]()
                        REQUIRES(mutex_) { return counts() || machine_.expelled() || refused_ || machine_.hopeless(); };
  const bool in_time = wait_awake(changed_, mutex_, limit, over);
  if (counts() && !machine_.expelled()) {
    return;
  }
  throw_if_out();
  if (in_time) {
    throw_no_agreement();
  }
  throw Error(ErrorCode::timeout, processes_->describe(processes_->self()) + ": no quorum has said within " +
                                      format_duration(limit) + " that the last step counts; there is no answer of " +
                                      names(machine_.unconfirmed()));
}

std::string Member::names(const std::vector<Processes::Id>& ids) const {
  std::string text;
  for (const Processes::Id who : ids) {
    text += (text.empty() ? "" : ", ") + processes_->describe(who);
  }
  return text.empty() ? "nobody" : text;
}

void Member::throw_no_agreement() const {
  const std::string self = processes_->describe(processes_->self());
  if (const auto ended = machine_.went_on()) {
    throw Error(ErrorCode::expelled, self + ": the others went on without this process; " +
                                         processes_->describe(ended->who) + " has ended in world " +
                                         std::to_string(ended->epoch) + ", and this process is in world " +
                                         std::to_string(machine_.world().epoch) + "; it must end");
  }
  const std::vector<Processes::Id> waiting = machine_.waits_for_word_of();
  throw Error(ErrorCode::timeout,
              self + ": no agreement on who goes on: there is no answer of " + names(machine_.waits_for()) +
                  (waiting.empty() ? "" : ", and of those that wait to be ranks not of " + names(waiting)) +
                  ". Fewer than half of the ranks are reached, or half without the lowest, and the others may go on");
}

}  // namespace gradwire::session
