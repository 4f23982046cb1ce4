// What a ticket that ready() has returned means to the session now.
#pragma once

#include "session/step/step.hpp"

namespace gradwire::session {

[[nodiscard]] bool has_ended(const Step& step, const Ticket& ticket);
/// Error(invalid_argument) for a ticket that no ready() of this session has returned so far.
void check_ticket(const Step& step, const char* call, const Ticket& ticket);
/// Error(invalid_argument) where the wait for it would be for ready() calls of the caller itself.
void check_wait(const Step& step, const Ticket& ticket);

}  // namespace gradwire::session
