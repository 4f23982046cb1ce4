#include "elastic/admission.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "elastic/job_messages.hpp"
#include "plan/plan.hpp"

namespace gradwire::session {
namespace {

wire::Bytes with_text(std::byte mark, const std::string& text) {
  wire::Bytes message{mark};
  wire::put(message, text.data(), text.size());
  return message;
}

}  // namespace

// A process that joins says the number of spares in its facts.
void Admission::tell_number_of_spares() const {
  if (job_->joined()) {
    return;
  }
  wire::Bytes message{kSparesMark};
  wire::put_number(message, static_cast<std::uint32_t>(job_.spares()));
  for (const Id who : job_.others()) {
    job_.send(who, message);
  }
}

void Admission::wait(const std::string& facts) {
  waits_with_ = facts;
  tell_facts();
}

void Admission::tell_facts() {
  if (waits_with_.empty()) {
    return;
  }
  std::vector<Id> all = job_.others();
  for (const Id who : all) {
    if (facts_delivered_to_.insert(who).second) {
      job_.send(who, with_text(kFactsMark, waits_with_));
    }
  }
  machine_.wait_among(std::move(all));
}

void Admission::find_again(Id who) {
  unreachable_.erase(who);
  machine_.back(who);
  facts_delivered_to_.erase(who);  // the facts may have been lost
  tell_facts();
}

// If the number differs on a process that joins, only that process has to go. The number is told once, at the
// beginning.
void Admission::hear_number_of_spares(Id from, wire::ByteReader body) {
  const auto theirs = body.number<std::uint32_t>();
  body.expect_end();
  if (job_.at_start(from) && spares_reported_by_.insert(from).second && theirs != job_.spares()) {
    refusal_ = Error(ErrorCode::mismatch, "[elastic] spares is " + std::to_string(job_.spares()) + " on " +
                                              job_.own_name() + " and " + std::to_string(theirs) + " on " +
                                              job_->describe(from) + "; give all processes the same policy");
  }
}

// A rank cannot be refused any more.
void Admission::hear_refusal(const std::string& why) {
  if (waits()) {
    refusal_ = Error(ErrorCode::mismatch, why);
  }
}

void Admission::hear_facts(Id from, const std::string& facts) {
  if (own_facts_.empty()) {
    early_facts_[from] = facts;
    return;
  }
  if (facts == own_facts_) {
    machine_.let_in(from);
    return;
  }
  std::string why = (job_.at_start(from) ? "a spare, " : "") + job_->describe(from) +
                    ", cannot be a rank: " + plan::first_difference(own_facts_, "the job", facts, "it");
  why.resize(std::min(why.size(), kMostRefusal));
  if (!waits() && machine_.world().members.front() == machine_.self()) {
    log(LogLevel::warning, why);
  }
  job_.send(from, with_text(kRefusalMark, why));  // every rank says it, since any of them may be stopped, or end
}

void Admission::let_in(std::string facts) {
  own_facts_ = std::move(facts);
  for (const auto& [who, said] : std::exchange(early_facts_, {})) {
    hear_facts(who, said);
  }
}

void Admission::log_unaware_processes() const {
  if (job_.at_start(machine_.self())) {
    return;
  }
  const std::vector<Id> unaware = machine_.unaware();
  log(LogLevel::warning,
      unaware.empty() ? "this process waits to be a rank: the others have not come to share(), or make no steps"
                      : "this process waits to be a rank: all that have not ended must know of it, and these have not "
                        "said so: " +
                            job_.names(unaware) + "; where one of them is stopped, end it");
}

void Admission::log_broken_ways() const {
  if (!unreachable_.empty()) {
    log(LogLevel::warning, "the way to " + std::to_string(unreachable_.size()) +
                               " processes is broken, and nobody else is left: this process ends without a place");
  }
}

}  // namespace gradwire::session
