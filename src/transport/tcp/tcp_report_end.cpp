#include "transport/tcp/tcp_report_end.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string_view>

#include "base/environment.hpp"
#include "transport/tcp/tcp_reaching.hpp"

namespace gradwire::transport::tcp {
namespace {

constexpr std::chrono::seconds kToTell{2};

// Never destroyed, since a handler of exit() uses it.
std::atomic<EndReport*> g_report{nullptr};
std::atomic<pid_t> g_process{0};
std::atomic<bool> g_no_place{false};

void at_exit(int status, void* /*unused*/) { this_process_ends(status); }

}  // namespace

EndReport::EndReport(const std::string& server)
    : server_(RegistrationAddress::from_text(server)), process_(server_ ? random_number() : 0) {}

void EndReport::begin() noexcept { tell(RegistrationLetter::Kind::runs, 0); }

void EndReport::end(int status) noexcept {
  if (!std::exchange(ended_, true)) {
    tell(RegistrationLetter::Kind::ends, status);
  }
}

void EndReport::tell(RegistrationLetter::Kind kind, int status) noexcept {
  if (!server_) {
    return;
  }
  try {
    RegistrationLetter letter;
    std::copy_n(server_->token.begin(), letter.token.size(), letter.token.begin());
    letter.kind = kind;
    letter.process = process_;
    letter.status = status;
    const std::string host = host_name();
    std::copy_n(host.begin(), std::min(host.size(), letter.host.size() - 1), letter.host.begin());
    std::string ignored;
    static_cast<void>(reach_server(*server_, letter, Clock::now() + kToTell, ignored));
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): no memory
  }
}

void report_end_of_this_process() noexcept {
  try {
    const auto server = environment("GRADWIRE_REGISTER");
    if (!server || g_report.load() != nullptr) {
      return;
    }
    auto* report = new EndReport(*server);  // NOLINT(cppcoreguidelines-owning-memory)
    g_process = ::getpid();
    g_report = report;
    report->begin();
    ::on_exit(&at_exit, nullptr);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): no memory
  }
}

void this_process_ends(int status) noexcept {
  EndReport* report = g_report.load();
  if (report != nullptr && g_process == ::getpid()) {
    report->end(status == 0 && g_no_place ? kNoPlace : status);
  }
}

void this_process_had_no_place() noexcept { g_no_place = true; }

}  // namespace gradwire::transport::tcp
