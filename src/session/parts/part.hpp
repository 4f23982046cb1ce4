// What a session can do beside reducing gradients. A part owns its state, which ends with the world: where ranks end or
// join, the session of the next world makes its parts anew. The session makes the parts that its plan asks for, in the
// order of a table, and drives each through a few phases; it knows no part by its type.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/session.hpp"
#include "gradwire/step.hpp"
#include "plan/plan.hpp"
#include "session/runner.hpp"
#include "session/step_comparison.hpp"
#include "session/tensors.hpp"

namespace gradwire::session {

class Part {
 public:
  Part() = default;
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  virtual ~Part() = default;

  /// One word, such as "scales". Ranks compare the names of their parts, in order, when they agree on the plan.
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// What the part compares among ranks at the ends of steps. Null: it compares nothing.
  [[nodiscard]] virtual ComparedPart* compared() noexcept { return nullptr; }
  /// A step has ended with `outcome`; what ranks compare after it comes later. finish() calls this with no lock held.
  virtual void after_step(const StepOutcome& /*outcome*/) {}
  /// Whole lines for Session::explain(). Any thread.
  [[nodiscard]] virtual std::string explain() const { return {}; }
};

/// What a part is made from once the plan is there. All of it outlives the part.
struct PartInputs {
  const plan::Plan& plan;
  const Tensors& tensors;
  Runner& runner;
};

/// Makes one kind of part. Returns null where this session does not need it; the answer is the same on every rank.
using MakePart = std::function<std::unique_ptr<Part>(const PartInputs&)>;
using PartTable = std::vector<MakePart>;

/// The table that every session is given unless its maker names another. A new part adds its line there.
[[nodiscard]] const PartTable& standard_parts();

/// The parts of one session. One without any pays for two looks in a step at whether a vector is empty.
class Parts {
 public:
  explicit Parts(PartTable table) : table_(std::move(table)) {}

  /// Makes what the plan asks for. Where a maker throws there are no parts, and the call may be repeated.
  void make(const PartInputs& inputs);
  /// Adds the parts that compare numbers among ranks to `comparison`, which must not outlive this.
  void add_to(StepComparison& comparison);
  /// The table that these parts were made from; the session of the next world gets the same one.
  [[nodiscard]] const PartTable& table() const noexcept { return table_; }

  /// "scales, counter"; empty where there is none.
  [[nodiscard]] std::string names() const;
  /// Whether some part compares ranks after `step`; the same on every rank.
  [[nodiscard]] bool due(std::uint64_t step) const;
  void after_step(const StepOutcome& outcome);
  [[nodiscard]] std::string explain() const;

 private:
  PartTable table_;
  std::vector<std::unique_ptr<Part>> parts_;
};

/// A session with parts of the caller's choice, in place of standard_parts().
[[nodiscard]] Session make_session(std::unique_ptr<Runner> runner, Policy policy, SessionOptions options,
                                   PartTable parts);

}  // namespace gradwire::session
