// Checks of tickets that ready() has returned, against the current step.
#pragma once

#include "session/step/step.hpp"

namespace gradwire::session {

/// Whether the ticket's result has arrived.
[[nodiscard]] bool has_ended(const Step& step, const Ticket& ticket);
/// Throws Error(invalid_argument) for a ticket that no ready() of this session has returned so far.
void check_ticket(const Step& step, const char* call, const Ticket& ticket);
/// Throws Error(invalid_argument) if a wait for the ticket could never end, because the caller itself must first call
/// ready() for other tensors, or finish().
void check_wait(const Step& step, const Ticket& ticket);

}  // namespace gradwire::session
