#include "elastic/world_agreement.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/awake_time.hpp"
#include "base/log.hpp"
#include "base/units.hpp"
#include "elastic/job_messages.hpp"
#include "membership/membership_message.hpp"
#include "memory/background_threads.hpp"

namespace gradwire::session {
namespace {

// Time after which a process that joins says why it is not in yet.
constexpr std::chrono::seconds kSilentWait{10};

membership::Time now() {
  return std::chrono::duration_cast<membership::Time>(std::chrono::steady_clock::now().time_since_epoch());
}

std::string text_of(wire::ByteReader& body, std::size_t most) {
  if (body.left() > most) {
    body.fail("it has a text of " + std::to_string(body.left()) + " bytes");
  }
  return std::string(wire::as_text(body.take(body.left())));
}

membership::World first_world(const Processes& processes, const membership::MembershipSettings& settings) {
  std::vector<Processes::Id> members = processes.all();
  members.resize(members.size() - settings.spares.size());
  const bool is_member = std::ranges::find(members, processes.self()) != members.end();
  return is_member ? membership::World{.epoch = 1, .members = std::move(members)} : membership::World{};
}

}  // namespace

WorldAgreement::WorldAgreement(std::shared_ptr<Processes> processes, const membership::MembershipSettings& settings,
                               KeptCopies& copies)
    : job_(std::move(processes), settings),
      settings_(settings),
      copies_(copies),
      machine_(job_.self(), first_world(*job_, settings), 0, settings, now()) {
  enter(machine_.epoch_entered());
  admission_.tell_number_of_spares();
  thread_ = std::thread([this] { run(); });
}

WorldAgreement::~WorldAgreement() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    watch_.end();
  }
  job_->wake();
  thread_.join();
  if (!failed_ && std::uncaught_exceptions() <= exceptions_) {
    // This comes before the machine's last words, from which the next world follows: its members then know the reason.
    const bool is_whole = !job_.lacks_a_rank(machine_.world().members);
    wire::Bytes farewell{kFarewellMark, std::byte{static_cast<std::uint8_t>(is_whole ? 1 : 0)}};
    wire::put_number(farewell, entered_);
    wire::put_number(farewell, machine_.delivered());
    for (const membership::Id who : job_.others()) {
      job_.send(who, farewell);
    }
  }
  machine_.leave();
  act();
  job_->end();
}

void WorldAgreement::run() noexcept {
  const memory::BackgroundThread background;
  const auto is_to_go_on = [this] {
    const std::vector<Processes::Heard> heard = job_->hear(settings_.beat / 2);
    const MutexLock lock(mutex_);
    if (stopping_) {
      return false;
    }
    for (const Processes::Heard& one : heard) {
      hear(one);
    }
    for (const membership::ProcessEnd& end : departures_.take_due(Departures::Clock::now())) {
      note_end(end);
    }
    machine_.tick(now());
    act();
    return true;
  };
  for (bool told = false;;) {
    try {
      if (!is_to_go_on()) {
        return;
      }
    } catch (const Error& error) {  // if that stays so, the others take this process for silent
      if (!std::exchange(told, true)) {
        log(LogLevel::error, std::string("membership: ") + error.what());
      }
    }
  }
}

void WorldAgreement::hear(const Processes::Heard& heard) {
  if (heard.ended) {
    hear_of_end({heard.from, heard.epoch, heard.step});
  } else if (heard.lost) {
    admission_.lose(heard.from);
    machine_.cut(heard.from, now());
  } else if (heard.back) {
    admission_.find_again(heard.from);
  } else if (heard.came) {
    admission_.tell_facts();
  } else {
    hear_message(heard);
  }
}

void WorldAgreement::hear_of_end(const membership::ProcessEnd& end) {
  if (departures_.hear_of_end(end)) {
    job_.note_loss_of(end.who);
    note_end(end);
  }
}

// A damaged message makes the step anew, as a lost one would. An intact message that no member would send is another
// matter.
void WorldAgreement::hear_message(const Processes::Heard& heard) {
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
      case kCopyMark: return is_member(heard.from) ? copies_.hear(heard.from, in) : copies_.lose(heard.from);
      case kFactsMark: return admission_.hear_facts(heard.from, text_of(in, kMostFacts));
      case kRefusalMark: return admission_.hear_refusal(text_of(in, kMostRefusal));
      case kSparesMark: return admission_.hear_number_of_spares(heard.from, in);
      default: hear_of_world(heard.from, body);
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::out_of_memory) {
      return machine_.damaged(heard.from, now());
    }
    machine_.distrust(heard.from, error.what(), now());
  } catch (const std::bad_alloc&) {
    machine_.damaged(heard.from, now());
  }
}

void WorldAgreement::hear_of_world(Processes::Id from, std::span<const std::byte> body) {
  const membership::MembershipMessage message = membership::decode_body(body);
  if (message.from != from) {
    return machine_.distrust(from, "it says that it is " + job_->describe(message.from), now());
  }
  machine_.receive(message, now());
}

void WorldAgreement::hear_farewell(Processes::Id from, wire::ByteReader body) {
  const bool is_whole = body.number<std::uint8_t>() != 0;
  const auto epoch = body.number<std::uint32_t>();
  const auto step = body.number<std::uint64_t>();
  body.expect_end();
  departures_.say_farewell({from, epoch, step}, Departures::Clock::now());
  if (!is_whole) {
    job_->note_loss();
  }
}

void WorldAgreement::note_end(const membership::ProcessEnd& end) {
  const Processes::Id who = end.who;
  admission_.forget(who);
  copies_.lose(who);
  if (!waits() && !is_member(who)) {
    job_.note_loss_of(who);  // `who` is a spare, which would have stayed until the job ends
  }
  machine_.dead(end, now());
}

bool WorldAgreement::is_member(Processes::Id who) const {
  const std::vector<membership::Id>& members = machine_.world().members;
  return std::binary_search(members.begin(), members.end(), who);
}

// A process that hears of a later world must be able to rely on it that the end of this process would tell of that
// world. So a joining process is told after the epoch is entered, and the members of the previous world before that.
void WorldAgreement::act() {
  for (const membership::Membership::Outgoing& out : machine_.take_messages()) {
    enter(std::min(out.message.epoch, machine_.epoch_entered()));
    job_->send(out.to, membership::encode(out.message));
  }
  enter(machine_.epoch_entered());
  for (const membership::Distrusted& liar : machine_.take_distrusted()) {
    log(LogLevel::warning, job_->describe(liar.who) + " says what no rank would, and is to go: " + liar.why);
  }
  for (const membership::Id who : machine_.gone()) {
    if (departures_.leave_out(who)) {
      job_->leave_out(who);
    }
  }
  watch_.look([this](std::uint32_t epoch) {
    mutex_.assert_held();
    return over_locked(epoch);
  });
  changed_.notify_all();
}

void WorldAgreement::enter(std::uint32_t epoch) {
  if (epoch > entered_) {
    entered_ = epoch;
    job_->enter(epoch);
  }
}

void WorldAgreement::miss(std::uint32_t epoch, Processes::Id who) {
  const MutexLock lock(mutex_);
  if (!over_locked(epoch)) {  // otherwise the broken connection may be a deliberate one
    machine_.missed(who, now());
    act();
  }
}

bool WorldAgreement::over_locked(std::uint32_t epoch) const { return machine_.agreeing() || has_left(epoch); }

// Whether another world has begun, or this process will be in none.
bool WorldAgreement::has_left(std::uint32_t epoch) const {
  return machine_.expelled() || machine_.world().epoch != epoch || admission_.refusal();
}

WorldAgreement::World WorldAgreement::world() const {
  const MutexLock lock(mutex_);
  throw_if_out();
  return machine_.world();
}

void WorldAgreement::throw_if_out() const {
  if (admission_.refusal()) {
    throw Error(*admission_.refusal());
  }
  if (machine_.expelled()) {
    throw Error(ErrorCode::expelled, job_.own_name() +
                                         ": the others went on without this process, which did not answer for " +
                                         format_duration(settings_.silent_after) + " or more; it must end");
  }
}

void WorldAgreement::watch(std::uint32_t epoch, std::function<void()> interrupt) {
  const MutexLock lock(mutex_);
  watch_.begin(epoch, std::move(interrupt));
  act();
}

bool WorldAgreement::commit(std::uint32_t epoch, std::chrono::milliseconds limit) {
  const MutexLock lock(mutex_);
  if (over_locked(epoch)) {
    return false;
  }
  const std::uint64_t transaction = machine_.delivered() + 1;
  machine_.ready(transaction);
  act();
  const auto is_decided = [&]() REQUIRES(mutex_) { return machine_.delivered() >= transaction || has_left(epoch); };
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

bool WorldAgreement::await_change(std::uint32_t epoch, std::chrono::milliseconds patience,
                                  std::chrono::milliseconds limit) {
  const MutexLock lock(mutex_);
  const auto is_over = [&]() REQUIRES(mutex_) { return over_locked(epoch); };
  const auto changed = [&]() REQUIRES(mutex_) { return has_left(epoch); };
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

void WorldAgreement::confirm(std::chrono::milliseconds limit) {
  const MutexLock lock(mutex_);
  throw_if_out();
  const std::uint64_t step = machine_.delivered();
  {
    const MutexUnlock meanwhile(mutex_);
    job_->count(step);  // before anybody is asked: the processes that answer may end, and then this one may
  }
  machine_.confirm(step);
  act();
  const auto counts = [&]() REQUIRES(mutex_) { return waits() || machine_.confirmed() >= step; };
  const auto over = [&]() REQUIRES(mutex_) {
    return counts() || machine_.expelled() || admission_.refusal() || machine_.hopeless();
  };
  const bool in_time = wait_awake(changed_, mutex_, limit, over);
  if (counts() && !machine_.expelled()) {
    return;
  }
  throw_if_out();
  if (in_time) {
    throw_no_agreement();
  }
  throw Error(ErrorCode::timeout,
              job_.own_name() + ": no quorum has said within " + format_duration(limit) +
                  " that the last step counts; there is no answer of " + job_.names(machine_.unconfirmed()),
              ErrorCause::world);
}

bool WorldAgreement::wait_for_place(const std::string& facts) {
  const MutexLock lock(mutex_);
  admission_.wait(facts);
  const auto is_over = [&]() REQUIRES(mutex_) { return over_locked(0) || machine_.alone(); };
  for (int reports = 0; !changed_.wait_for(mutex_, reports == 0 ? kSilentWait : 6 * kSilentWait, is_over); ++reports) {
    admission_.log_unaware_processes();
  }
  if (!over_locked(0)) {
    admission_.log_broken_ways();
    job_->note_no_place();
    return false;
  }
  throw_if_out();
  return true;
}

void WorldAgreement::throw_no_agreement() const {
  const std::string self = job_.own_name();
  if (const auto ended = machine_.went_on()) {
    throw Error(ErrorCode::expelled, self + ": the others went on without this process; " + job_->describe(ended->who) +
                                         " has ended in world " + std::to_string(ended->epoch) +
                                         ", and this process is in world " + std::to_string(machine_.world().epoch) +
                                         "; it must end");
  }
  const std::vector<Processes::Id> waiting = machine_.awaited_newcomers();
  throw Error(ErrorCode::timeout,
              self + ": no agreement on who goes on: there is no answer of " + job_.names(machine_.awaited_members()) +
                  (waiting.empty() ? "" : ", and of those that wait to be ranks not of " + job_.names(waiting)) +
                  ". Fewer than half of the ranks are reached, or half without the lowest, and the others may go on",
              ErrorCause::world);
}

}  // namespace gradwire::session
