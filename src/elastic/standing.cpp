#include "elastic/standing.hpp"

#include <span>

#include "wire/bytes.hpp"

namespace gradwire::session {
namespace {

void put_tensors(wire::Bytes& out, const std::vector<std::uint32_t>& tensors) {
  wire::put_number(out, static_cast<std::uint32_t>(tensors.size()));
  for (const std::uint32_t tensor : tensors) {
    wire::put_number(out, tensor);
  }
}

std::vector<std::uint32_t> tensors_of(wire::ByteReader& in) {
  std::vector<std::uint32_t> tensors;
  for (auto left = in.number<std::uint32_t>(); left > 0; --left) {
    tensors.push_back(in.number<std::uint32_t>());
  }
  return tensors;
}

void put_gradient(wire::Bytes& out, std::uint32_t tensor, std::uint64_t step, double scale, bool flag) {
  wire::put_number(out, tensor);
  wire::put_number(out, step);
  wire::put_number(out, scale);
  wire::put_number(out, static_cast<std::uint8_t>(flag ? 1 : 0));
}

void get_gradient(wire::ByteReader& in, std::uint32_t& tensor, std::uint64_t& step, double& scale, bool& flag) {
  tensor = in.number<std::uint32_t>();
  step = in.number<std::uint64_t>();
  scale = in.number<double>();
  flag = in.number<std::uint8_t>() != 0;
}

}  // namespace

std::string encode_standing(const Standing& standing) {
  wire::Bytes out;
  for (const bool flag :
       {standing.holds, standing.terms.loss_scale_set, standing.terms.weighted, standing.flush, standing.syncs}) {
    out.push_back(static_cast<std::byte>(flag));
  }
  wire::put_number(out, standing.step);
  wire::put_number(out, standing.terms.loss_scale);
  wire::put_number(out, standing.coming_loss_scale);
  put_tensors(out, standing.with_residuals);
  std::vector<std::uint32_t> with_anchors;
  for (const SavedAnchor& anchor : standing.sync_modes.anchors) {
    with_anchors.push_back(anchor.tensor);
  }
  put_tensors(out, with_anchors);
  wire::put_number(out, static_cast<std::uint32_t>(standing.sync_modes.local_steps.size()));
  for (const SavedLocalSteps& local : standing.sync_modes.local_steps) {
    wire::put_number(out, local.tensor);
    wire::put_number(out, local.put_off_to);
    wire::put_number(out, static_cast<std::uint8_t>(local.moved ? 1 : 0));
  }
  wire::put_number(out, static_cast<std::uint32_t>(standing.sync_modes.results.size()));
  for (const SavedResult& result : standing.sync_modes.results) {
    put_gradient(out, result.tensor, result.step, result.scale, result.nonfinite);
  }
  wire::put_number(out, static_cast<std::uint32_t>(standing.sync_modes.late.size()));
  for (const LateGradient& late : standing.sync_modes.late) {
    put_gradient(out, late.tensor, late.step, late.scale, late.weighted);
  }
  return std::string(wire::as_text(out));
}

Standing decode_standing(const std::string& text) {
  wire::ByteReader in(std::as_bytes(std::span(text)), "what a newcomer is told");
  Standing standing;
  for (bool* flag :
       {&standing.holds, &standing.terms.loss_scale_set, &standing.terms.weighted, &standing.flush, &standing.syncs}) {
    *flag = in.number<std::uint8_t>() != 0;
  }
  standing.step = in.number<std::uint64_t>();
  standing.terms.loss_scale = in.number<double>();
  standing.coming_loss_scale = in.number<double>();
  standing.with_residuals = tensors_of(in);
  for (const std::uint32_t tensor : tensors_of(in)) {
    standing.sync_modes.anchors.push_back({tensor});
  }
  for (auto left = in.number<std::uint32_t>(); left > 0; --left) {
    SavedLocalSteps& local = standing.sync_modes.local_steps.emplace_back();
    local.tensor = in.number<std::uint32_t>();
    local.put_off_to = in.number<std::uint64_t>();
    local.moved = in.number<std::uint8_t>() != 0;
  }
  for (auto left = in.number<std::uint32_t>(); left > 0; --left) {
    SavedResult& result = standing.sync_modes.results.emplace_back();
    get_gradient(in, result.tensor, result.step, result.scale, result.nonfinite);
  }
  for (auto left = in.number<std::uint32_t>(); left > 0; --left) {
    LateGradient& late = standing.sync_modes.late.emplace_back();
    get_gradient(in, late.tensor, late.step, late.scale, late.weighted);
  }
  if (in.left() != 0) {
    in.fail("there are " + std::to_string(in.left()) + " bytes behind it");
  }
  return standing;
}

}  // namespace gradwire::session
