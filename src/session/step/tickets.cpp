#include "session/step/tickets.hpp"

#include <cstddef>
#include <string>

namespace gradwire::session {
namespace {

// Whether the bucket follows a sync mode in the ticket's step, so that its result arrives with finish().
bool in_mode(const Step& step, const Ticket& ticket) {
  return ticket.step == step.number() && step.modes.active(ticket.bucket, step.number());
}

}  // namespace

bool has_ended(const Step& step, const Ticket& ticket) {
  if (in_mode(step, ticket)) {
    return false;
  }
  return ticket.bucket == Ticket::kNothing || ticket.step < step.number() ||
         (ticket.step == step.number() && step.buckets.has_ended(ticket.bucket));
}

// The result of a ticket that fails this check would never arrive.
void check_ticket(const Step& step, const char* call, const Ticket& ticket) {
  if (ticket.bucket == Ticket::kNothing) {
    return;
  }
  const std::string given = std::string(call) + ": the ticket is of bucket " + std::to_string(ticket.bucket) +
                            " in step " + std::to_string(ticket.step);
  const std::string fix = "; give a ticket that ready() of this session returned";
  if (ticket.session != 0 && ticket.session != step.session()) {
    throw Error(ErrorCode::invalid_argument, given + " of another session" + fix);
  }
  if (ticket.bucket >= step.buckets.size()) {
    throw Error(ErrorCode::invalid_argument,
                given + ", this session has " + std::to_string(step.buckets.size()) + " buckets" + fix);
  }
  if (ticket.step > step.number()) {
    throw Error(ErrorCode::invalid_argument,
                given + ", this session is in step " + std::to_string(step.number()) + fix);
  }
}

void check_wait(const Step& step, const Ticket& ticket) {
  if (in_mode(step, ticket)) {
    throw Error(ErrorCode::invalid_argument, "wait: the tensor's sync mode brings its result with finish(); call that");
  }
  if (has_ended(step, ticket)) {
    return;
  }
  // In a step that begins with a look for NaN, no bucket starts before all tensors are ready.
  const std::size_t last = step.looks_first() ? step.buckets.size() : std::size_t{ticket.bucket} + 1;
  for (std::size_t bucket = 0; bucket < last; ++bucket) {
    if (const std::uint32_t missing = step.buckets.missing(bucket); missing > 0) {
      throw Error(ErrorCode::invalid_argument,
                  "wait: bucket " + std::to_string(bucket) + " has " + std::to_string(missing) +
                      " tensor(s) that are not ready, and must start first" +
                      (step.looks_first() ? " (in this step ranks look for NaN and Inf in all gradients first)" : "") +
                      "; call ready() for them first");
    }
  }
}

}  // namespace gradwire::session
