// How a process reaches the `gradwire run` that started it.
#pragma once

#include <string>

#include "transport/tcp/tcp_registration.hpp"

namespace gradwire::transport::tcp {

/// A connection on which the server has answered the letter with "welcome". If there is none before the deadline, it is
/// not valid, and `why` says what was tried. Addresses of other hosts are used only where there is no server on this
/// one.
[[nodiscard]] Socket reach_server(const RegistrationAddress& server, const RegistrationLetter& letter,
                                  Clock::time_point deadline, std::string& why);

}  // namespace gradwire::transport::tcp
