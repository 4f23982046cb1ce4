// Defines helpers for the tests of the registration: settings, ranks in threads, connections.
#pragma once

#include <chrono>
#include <future>
#include <string>
#include <vector>

#include "cli/registration_server.hpp"
#include "drop_in/registration.hpp"
#include "transport/tcp/tcp_registration.hpp"

namespace gradwire::cli {

using drop_in::Registration;
using drop_in::RegistrationAnswer;
using drop_in::RegistrationSettings;
using Kind = RegistrationAnswer::Kind;
using std::chrono::milliseconds;
namespace tcp = transport::tcp;

inline constexpr milliseconds kUsual{150};
inline constexpr milliseconds kLong{20'000};  // longer than any test here

inline RegistrationServer::Options options(milliseconds usual, milliseconds longest = kLong) {
  return {.patience = {.usual = usual, .longest = longest}, .on_loopback = true};
}

inline RegistrationSettings settings(const std::string& server, const std::string& job = "job", int rank = -1) {
  RegistrationSettings settings;
  settings.server = server;
  settings.job = job;
  settings.launched_rank = rank;
  return settings;
}

// Lets ranks `from` to `end` of a world of `size` ask, each in a thread.
inline std::vector<std::future<RegistrationAnswer>> ask_all(const std::string& server, const std::string& job, int from,
                                                            int end, int size) {
  std::vector<std::future<RegistrationAnswer>> answers;
  for (int rank = from; rank < end; ++rank) {
    answers.push_back(std::async(std::launch::async, [=] {
      Registration one(settings(server, job, rank));
      one.begin();
      return one.ask(rank, size);
    }));
  }
  return answers;
}

// Returns the address for TCP only, as from another host.
inline std::string without_local(const std::string& server) {
  auto address = tcp::RegistrationAddress::from_text(server).value();
  address.local.clear();
  return address.to_text();
}

inline tcp::Socket connect_to(const std::string& server) {
  int code = 0;
  return tcp::begin_connecting_locally(tcp::RegistrationAddress::from_text(server)->local, code);
}

}  // namespace gradwire::cli
