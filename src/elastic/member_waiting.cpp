// How a process that waits to be a rank and the ranks compare what they run, and who is let in.
#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "elastic/member.hpp"
#include "elastic/member_messages.hpp"
#include "plan/plan.hpp"

namespace gradwire::session {
namespace {

// After which one that joins says why it is not in yet.
constexpr std::chrono::seconds kSilentWait{10};

wire::Bytes with_text(std::byte mark, const std::string& text) {
  wire::Bytes message{mark};
  wire::put(message, text.data(), text.size());
  return message;
}

}  // namespace

void Member::say_to_all_that_it_waits() {
  if (says_.empty()) {
    return;
  }
  std::vector<Processes::Id> all = others();
  for (const Processes::Id who : all) {
    if (told_facts_.insert(who).second) {
      send_sealed(who, with_text(kFactsMark, says_));
    }
  }
  machine_.wait_among(std::move(all));
}

// One that joins says it with its facts, and alone has to go where it is another number. Said once, at the beginning.
void Member::hear_number_of_spares(Processes::Id from, wire::ByteReader body) {
  const std::size_t mine = settings_.spares.size();
  const auto theirs = body.number<std::uint32_t>();
  body.expect_end();
  if (at_start(from) && told_spares_.insert(from).second && theirs != mine) {
    refused_ =
        Error(ErrorCode::mismatch, "[elastic] spares is " + std::to_string(mine) + " on " +
                                       processes_->describe(processes_->self()) + " and " + std::to_string(theirs) +
                                       " on " + processes_->describe(from) + "; give all processes the same policy");
  }
}

// A rank is none that others could refuse.
void Member::hear_refusal(const std::string& why) {
  if (waits()) {
    refused_ = Error(ErrorCode::mismatch, why);
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
  std::string why = (at_start(from) ? "a spare, " : "") + processes_->describe(from) +
                    ", cannot be a rank: " + plan::first_difference(own_facts_, "the job", facts, "it");
  why.resize(std::min(why.size(), kMostRefusal));
  if (!waits() && machine_.world().members.front() == machine_.self()) {
    log(LogLevel::warning, why);
  }
  send_sealed(from, with_text(kRefusalMark, why));  // by all: any of them may be stopped, or end
}

void Member::let_in(std::string facts) {
  const MutexLock lock(mutex_);
  own_facts_ = std::move(facts);
  for (const auto& [who, said] : std::exchange(facts_, {})) {
    hear_facts(who, said);
  }
}

bool Member::wait_for_place(const std::string& facts) {
  const MutexLock lock(mutex_);
  says_ = facts;
  say_to_all_that_it_waits();
  const auto is_over = [&]() REQUIRES(mutex_) { return over_locked(0) || machine_.alone(); };
  for (int reports = 0; !changed_.wait_for(mutex_, reports == 0 ? kSilentWait : 6 * kSilentWait, is_over); ++reports) {
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

}  // namespace gradwire::session
