#include "drop_in/registration.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <thread>
#include <utility>

#include "base/environment.hpp"
#include "base/mpi_job.hpp"
#include "base/units.hpp"
#include "transport/tcp/tcp_reaching.hpp"

namespace gradwire::drop_in {
namespace {

namespace tcp = transport::tcp;
using tcp::Clock;
using Kind = tcp::RegistrationLetter::Kind;
using Said = tcp::RegistrationReply::Kind;

constexpr std::chrono::milliseconds kAskAgain{100};

template <typename Letter>
std::span<std::byte> letter_bytes(Letter& letter) {
  return std::as_writable_bytes(std::span(&letter, 1));
}

template <std::size_t N>
void put_text(std::array<char, N>& field, std::string_view text) {
  std::copy_n(text.begin(), std::min(text.size(), N - 1), field.begin());
}

// If the job does not fit into the field, an FNV-1a hash of it still separates jobs.
std::string job_field(const std::string& job) {
  constexpr std::size_t kMost = 160;
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : job) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  }
  return job.size() <= kMost ? job : job.substr(0, kMost) + " " + std::to_string(hash);
}

}  // namespace

RegistrationSettings RegistrationSettings::of_environment() {
  RegistrationSettings settings;
  settings.server = environment("GRADWIRE_REGISTER");
  if (settings.server) {
    settings.job = mpi_job();
    settings.launched_rank = gradwire::launched_rank();
  }
  return settings;
}

// Returns false if there is no server, or its address cannot be parsed.
bool Registration::read_settings() {
  if (!settings_) {
    settings_ = RegistrationSettings::of_environment();
  }
  if (settings_->server && !server_) {
    server_ = tcp::RegistrationAddress::from_text(*settings_->server);
    process_ = tcp::random_number();
    if (!server_) {
      why_ = "the address in GRADWIRE_REGISTER, which is not one that gradwire run sets";
    }
  }
  return server_.has_value();
}

tcp::RegistrationLetter Registration::letter(Kind kind) const {
  tcp::RegistrationLetter letter;
  std::copy_n(server_->token.begin(), letter.token.size(), letter.token.begin());
  letter.kind = kind;
  letter.process = process_;
  letter.rank = settings_->launched_rank;
  put_text(letter.job, job_field(settings_->job));
  put_text(letter.host, tcp::host_name());
  return letter;
}

bool Registration::reach() {
  socket_ = tcp::reach_server(*server_, letter(Kind::begins), Clock::now() + settings_->to_connect, why_);
  return socket_.valid();
}

void Registration::begin() noexcept {
  try {
    if (read_settings()) {
      begun_ = true;
      static_cast<void>(reach());
    }
  } catch (const std::exception& error) {
    begun_ = true;
    why_ = error.what();
  }
}

// Returns no value if the connection ended, or no answer has come yet.
std::optional<RegistrationAnswer> Registration::hear(Clock::time_point deadline) {
  tcp::RegistrationReply reply;
  if (!tcp::read_until(socket_, letter_bytes(reply), deadline) ||
      !std::equal(reply.proof.begin(), reply.proof.end(), server_->proof.begin(), server_->proof.end()) ||
      reply.named > tcp::RegistrationReply::kMostNamed) {
    return std::nullopt;
  }
  std::vector<std::int32_t> ranks(reply.named);
  if (!tcp::read_until(socket_, std::as_writable_bytes(std::span(ranks)), deadline)) {
    return std::nullopt;
  }
  if (reply.kind == Said::all) {
    return RegistrationAnswer{.kind = RegistrationAnswer::Kind::all, .missing = {}, .why = {}};
  }
  if (reply.kind == Said::missing) {
    return RegistrationAnswer{
        .kind = RegistrationAnswer::Kind::missing, .missing = std::vector<int>(ranks.begin(), ranks.end()), .why = {}};
  }
  return std::nullopt;
}

RegistrationAnswer Registration::question(int rank, int world_size) {
  RegistrationAnswer unreachable{.kind = RegistrationAnswer::Kind::unreachable, .missing = {}, .why = {}};
  if (!read_settings()) {
    return settings_->server ? unreachable : RegistrationAnswer{};
  }
  if (settings_->job.empty() && world_size == 1) {
    return {.kind = RegistrationAnswer::Kind::all, .missing = {}, .why = {}};
  }
  if (settings_->job.empty()) {
    why_ =
        "its address under the name of a job: nothing in the environment says which MPI job this process belongs to "
        "(no PMIX_NAMESPACE, no proxy of "
        "hydra, no SLURM_STEP_ID)";
    return unreachable;
  }
  if (begun_ && !socket_.valid()) {
    return unreachable;
  }
  tcp::RegistrationLetter asks = letter(Kind::asks);
  asks.rank = rank;
  asks.world_size = world_size;
  const auto deadline = Clock::now() + settings_->to_be_answered;
  do {
    if (!socket_.valid() && !reach()) {
      return unreachable;
    }
    if (tcp::write_until(socket_, letter_bytes(asks), deadline)) {
      if (auto answer = hear(deadline)) {
        return *answer;
      }
    }
    socket_ = tcp::Socket();
    std::this_thread::sleep_for(kAskAgain);
  } while (Clock::now() < deadline);
  why_ = "it did not answer within " + format_duration(settings_->to_be_answered);
  return unreachable;
}

RegistrationAnswer Registration::ask(int rank, int world_size) noexcept {
  RegistrationAnswer answer;
  try {
    answer = question(rank, world_size);
  } catch (const std::exception& error) {
    answer.kind = RegistrationAnswer::Kind::unreachable;
    why_ = error.what();
  }
  socket_ = tcp::Socket();
  begun_ = false;
  if (answer.kind == RegistrationAnswer::Kind::unreachable) {
    answer.why = std::move(why_);
  }
  return answer;
}

}  // namespace gradwire::drop_in
