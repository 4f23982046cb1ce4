// One rank's part in one communicator whose calls are on host memory: what a router decides is done over a transport.
// Knows no MPI: who makes one says how to connect the ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "drop_in/router.hpp"
#include "gradwire/communicator.hpp"

namespace gradwire::drop_in {

class Member {
 public:
  /// A transport between the ranks of the communicator. Called once, by every rank, inside the first call that is
  /// compressed.
  using Connect = std::function<std::shared_ptr<Transport>()>;

  /// `configuration` and `ledger` must outlive it.
  /// `name`: of the communicator, where choices are followed.
  Member(const Configuration& configuration, Ledger& ledger, const Agreement& agreement, Connect connect,
         const CommunicatorName& name = {});
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  struct Route : Router::Route {
    FeedbackBuffer* feedback = nullptr;  // where the codec wants one
  };
  using Origin = Router::Origin;

  /// As Router::route().
  [[nodiscard]] Route route(const Call& call, std::string_view op, const Origin& origin);

  /// Does what route() said, and counts it. On an Error the ranks are out of step: make no more of these calls.
  void all_reduce(const Route& route, ConstView input, View output, Reduction reduction = Reduction::sum);
  void reduce_scatter(const Route& route, ConstView input, View output, std::span<const std::uint64_t> counts,
                      Reduction reduction = Reduction::sum);
  /// As Router's.
  void measured(double seconds) { router_.measured(seconds); }
  [[nodiscard]] std::optional<CallTotals::Measured> measured(const ChoiceClass& what) const {
    return router_.measured(what);
  }
  [[nodiscard]] const Choices& choices() const noexcept { return router_.choices(); }
  [[nodiscard]] CallTotals passed_totals(const Route& route, std::uint64_t bytes) const {
    return router_.passed_totals(route, bytes);
  }
  /// As Router::count_passed().
  void count_passed(const Route& route, std::uint64_t bytes, double seconds) {
    router_.count_passed(route, bytes, seconds);
  }

  [[nodiscard]] const Settings& settings() const noexcept { return router_.settings(); }
  /// These as Router's.
  void stand_aside(bool aside, bool for_good) noexcept { router_.stand_aside(aside, for_good); }
  [[nodiscard]] bool could_compress(const Call& call) { return router_.could_compress(call); }
  [[nodiscard]] bool dry_run() const noexcept { return router_.dry_run(); }
  /// Bytes of the residuals it holds.
  [[nodiscard]] std::uint64_t residual_bytes() const;

 private:
  [[nodiscard]] bool all_say(std::uint64_t value);
  void make_worst(std::span<double> values);
  [[nodiscard]] std::vector<double> gather(std::span<const double> mine);
  [[nodiscard]] Communicator& communicator();
  [[nodiscard]] CallOptions options(const Route& route, Reduction reduction) const;

  const Configuration& configuration_;
  Connect connect_;
  std::optional<Communicator> communicator_;
  Router router_;
  std::uint64_t resets_ = 0;                               // of the router, when the latest residual was made
  std::vector<std::unique_ptr<FeedbackBuffer>> feedback_;  // by order
};

}  // namespace gradwire::drop_in
