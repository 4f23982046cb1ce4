// HostReducer makes one rank's calls on one communicator, on host memory: it does what a router decides, over a
// transport. It knows no MPI: the caller says how to connect the ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "drop_in/call_sample.hpp"
#include "drop_in/router.hpp"
#include "gradwire/communicator.hpp"
#include "gradwire/error.hpp"

namespace gradwire::drop_in {

class HostReducer {
 public:
  /// A transport between the ranks of the communicator. Called once, by every rank, inside the first call that is
  /// compressed.
  using Connect = std::function<std::shared_ptr<Transport>()>;

  /// `configuration` and `ledger` must outlive the reducer.
  HostReducer(const Configuration& configuration, Ledger& ledger, const AgreedSettings& agreement, Connect connect);
  /// Drops a trial that has begun: other ranks may wait in it.
  ~HostReducer() { drop_trial(); }
  HostReducer(const HostReducer&) = delete;
  HostReducer& operator=(const HostReducer&) = delete;

  struct Route : Router::Route {
    FeedbackBuffer* feedback = nullptr;  // set if the codec wants one
  };
  using Origin = Router::Origin;

  /// See Router.
  [[nodiscard]] CallDecision decide(const Call& call) const noexcept { return router_.decide(call); }
  [[nodiscard]] Route route(const Call& call, const CallDecision& decided, std::string_view op, const Origin& origin);
  [[nodiscard]] Route route(const Call& call, std::string_view op, const Origin& origin) {
    return route(call, decide(call), op, origin);
  }

  /// If route() says `turn.trial`, the call is made both ways, and the job gets the library's sum: begin_trial(), the
  /// library's own call, end_trial(). `input` is what this rank contributes. It must stay until end_trial() unless the
  /// call is `in_place`: then the library's call may change it, and it is copied. `counts` is for a reduce-scatter. Our
  /// own call goes from `input` into a buffer of its own, before the library's call or after it. None of the three
  /// functions throws: if our call fails on any rank, every call passes from then on, on all ranks.
  void begin_trial(const Route& route, ConstView input, bool in_place, std::span<const std::uint64_t> counts = {},
                   Reduction reduction = Reduction::sum) noexcept;
  /// `library_seconds` is the time of the library's own call. `result` is this rank's part of the library's sum, in a
  /// reduce-scatter its own segment; empty if it has none.
  void end_trial(double library_seconds, ConstView result) noexcept;
  /// To be called if the library's own call has failed or was not made. The next route() does the same for an
  /// unfinished trial.
  void drop_trial() noexcept;

  /// Makes and counts the call as route() said. After an Error the ranks are out of step: make no more of these calls.
  void all_reduce(const Route& route, ConstView input, View output, Reduction reduction = Reduction::sum);
  void reduce_scatter(const Route& route, ConstView input, View output, std::span<const std::uint64_t> counts,
                      Reduction reduction = Reduction::sum);
  /// Returns the lines that this process has to print since the last call.
  [[nodiscard]] std::vector<std::string> take_lines() { return router_.take_lines(); }
  /// Compares a number with those of all ranks, over the transport of compressed calls. Error(corrupt), with `what` in
  /// its text, on every rank where they differ: ranks have agreed on it before, but somebody has changed that.
  void check_same(std::uint64_t value, const std::string& what);
  /// Tells the other ranks, which may wait for this one, that a call has failed here. Once is enough.
  void abort(const Error& error) noexcept;
  /// Limits the memory that this rank may take to make calls both ways. Calls that need more pass, on all ranks.
  void limit_copies(std::uint64_t bytes) noexcept { most_copied_ = bytes; }

  /// See Router.
  void measured(double seconds) { router_.measured(seconds); }
  [[nodiscard]] std::optional<CallTotals::Measured> measured(const ChoiceClass& what) const {
    return router_.measured(what);
  }
  [[nodiscard]] const Choices& choices() const noexcept { return router_.choices(); }
  [[nodiscard]] CallTotals passed_totals(const Route& route, std::uint64_t bytes) const {
    return router_.passed_totals(route, bytes);
  }
  /// See Router::count_passed().
  void count_passed(const Route& route, std::uint64_t bytes, double seconds) {
    router_.count_passed(route, bytes, seconds);
  }

  /// See Router for these.
  void stand_aside(bool aside) noexcept { router_.stand_aside(aside); }
  void follow(const CommunicatorName& name) { router_.follow(name); }
  [[nodiscard]] bool aside() const noexcept { return router_.aside(); }
  [[nodiscard]] bool could_compress(const Call& call, const CallDecision& decided) {
    return router_.could_compress(call, decided);
  }
  [[nodiscard]] bool dry_run() const noexcept { return router_.dry_run(); }
  /// Bytes of the residuals that this reducer holds.
  [[nodiscard]] std::uint64_t residual_bytes() const;

 private:
  // A call that is made both ways.
  struct Trial {
    Route route;
    ConstView input;
    std::vector<std::uint64_t> counts;  // of a reduce-scatter
    Reduction reduction = Reduction::sum;
    View output;                          // of our own call
    std::vector<double> seconds;          // by way; 0 is the library's call
    double copying = 0;                   // seconds for copies
    std::vector<Difference> differences;  // by codec, of this rank
  };

  [[nodiscard]] bool all_say(std::uint64_t value);
  void make_worst(std::span<double> values);
  [[nodiscard]] std::vector<double> gather(std::span<const double> mine);
  [[nodiscard]] Communicator& communicator();
  [[nodiscard]] CallOptions options(const Route& route, const policy::Stage& stage, Reduction reduction) const;
  [[nodiscard]] bool take_scratch(std::uint64_t bytes) noexcept;
  void make_compressed(Trial& trial, ConstView result);
  void make_way(Trial& trial, std::size_t way);
  void share(const Trial& trial);
  void fail_trial(const Error& error) noexcept;
  [[nodiscard]] static std::optional<CallSample> keep_sample(const Route& route, ConstView input);
  // Returns the relative error of a call's result against an exact sum of the sample, which this function makes and
  // adds to `statistics`. `counts` is for a reduce-scatter.
  [[nodiscard]] std::optional<double> check(const CallSample& sample, ConstView result,
                                            std::span<const std::uint64_t> counts, Reduction reduction,
                                            Statistics& statistics);
  void look_at_small_values(const Route& route, const CallSample& sample);

  const Configuration& configuration_;
  Connect connect_;
  std::optional<Communicator> communicator_;
  Router router_;
  std::uint64_t most_copied_ = 2 * kMostCopied;
  std::unique_ptr<std::byte[]> scratch_;  // for a trial's copy of the input and its result
  bool in_trial_ = false;                 // route() has begun a trial, which has not ended
  std::optional<Trial> trial_;
  std::uint64_t gathered_bytes_ = 0;                       // sent by the latest gather()
  std::uint64_t resets_ = 0;                               // the router's, when the latest residual was made
  std::vector<std::unique_ptr<FeedbackBuffer>> feedback_;  // by order
};

}  // namespace gradwire::drop_in
