// Sessions over Processes: the public constructor, and the function that makes sessions over device memory.
#include <memory>
#include <utility>

#include "base/timeout.hpp"
#include "elastic/elastic_session.hpp"
#include "security/job_key.hpp"
#include "security/key.hpp"
#include "session/host/bucket_runner.hpp"
#include "session/logging/logging.hpp"

namespace gradwire {
namespace {

std::unique_ptr<session::ElasticSession> make_state(std::shared_ptr<Processes> processes, session::MakeRunner make,
                                                    Policy policy, const SessionOptions& given) {
  session::bind_log();
  const SessionOptions options = with_checked_timeout(given, "Session");
  if (processes == nullptr) {
    throw Error(ErrorCode::invalid_argument, "Session: processes is null");
  }
  if (!processes->encrypted()) {
    security::refuse_key(
        "a session over gradwire::Processes without a join file",
        "give the job a join file (GRADWIRE_LET_JOIN) and the key in GRADWIRE_KEY, so that its processes use "
        "gradwire's "
        "own connections, which are encrypted, or use a session over a Transport, which ends with any rank",
        policy.security.key);
  }
  if (processes->encrypted() && policy.security.lock_memory) {
    security::lock_keys();
  }
  if (!processes->claim()) {
    throw Error(ErrorCode::invalid_argument,
                "Session: these processes serve, or served, another session; make new ones, "
                "on every rank");
  }
  const Policy::Elastic settings = policy.elastic.value_or(Policy::Elastic{});
  auto elastic = std::make_unique<session::Elastic>(std::move(processes), std::move(make), settings, options.timeout);
  return std::make_unique<session::ElasticSession>(
      std::move(elastic),
      session::EngineSettings{.policy = std::move(policy), .options = options, .parts = session::standard_parts()});
}

}  // namespace

// Like the other constructor. NOLINTNEXTLINE(performance-unnecessary-value-param)
Session::Session(std::shared_ptr<Processes> processes, Policy policy, SessionOptions options)
    : Session(std::unique_ptr<State>(make_state(
          std::move(processes),
          [options = with_checked_timeout(options, "Session")](std::shared_ptr<Transport> transport,
                                                               std::uint32_t epoch) {
            return std::make_unique<session::BucketRunner>(std::move(transport), options, epoch);
          },
          std::move(policy), options))) {}

// NOLINTBEGIN(performance-unnecessary-value-param): as the public constructors
Session session::make_session(std::shared_ptr<Processes> processes, MakeRunner make, Policy policy,
                              SessionOptions options) {
  return Access::make(make_state(std::move(processes), std::move(make), std::move(policy), options));
}
// NOLINTEND(performance-unnecessary-value-param)

}  // namespace gradwire
