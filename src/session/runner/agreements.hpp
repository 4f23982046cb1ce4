// Agreements among the ranks of a session: on the plan, on broadcasts, on NaN and Inf, and on results.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "exchange/peers.hpp"
#include "plan/plan.hpp"

namespace gradwire::session {

// Each of these functions throws Error(mismatch) on every rank if ranks disagree.
/// Checks that all ranks have the same text. `what` names the exchange in errors, `about` the subject of the text.
void agree_on_text(exchange::Peers& peers, const std::string& mine, const std::string& what, const std::string& about);
/// Checks the texts of all ranks, by rank, without communication.
void compare_texts(const std::vector<std::string>& texts, const std::string& about);
/// Checks that all ranks have the same root and sizes for a broadcast, and pack its frames or do not.
void agree_on_broadcast(exchange::Peers& peers, std::span<const View> values, int root, bool packed);
/// Checks that all ranks have the same agreement_text(), which is `mine`. Ranks send its fingerprint first, since the
/// text is long and mostly equal. Returns the text `beside` of each rank, which may differ.
std::vector<std::string> agree_on_plan(exchange::Peers& peers, const std::string& mine, const std::string& beside);
/// Returns the text of all that ranks must agree on before the first step.
[[nodiscard]] std::string agreement_text(const plan::Plan& plan, bool weighted, std::uint64_t step,
                                         bool holds_residuals, const std::string& parts);
/// Returns the ranks whose `nonfinite` is true. All ranks must be at the same step and have the same loss scale.
[[nodiscard]] std::vector<int> agree_on_nonfinite(exchange::Peers& peers, bool nonfinite, double scale,
                                                  std::uint64_t step);
/// Checks that all ranks have the same hash of a step's results; the error names the ranks that differ from rank 0.
void agree_on_results(exchange::Peers& peers, std::uint64_t hash, std::uint64_t step);

}  // namespace gradwire::session
