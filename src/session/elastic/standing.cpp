#include "session/elastic/standing.hpp"

#include <span>

#include "wire/bytes.hpp"

namespace gradwire::session {

std::string encode_standing(const Standing& standing) {
  wire::Bytes out;
  for (const bool flag : {standing.holds, standing.loss_scale_set, standing.weighted, standing.flush}) {
    wire::put_number(out, static_cast<std::uint8_t>(flag ? 1 : 0));
  }
  wire::put_number(out, standing.step);
  wire::put_number(out, standing.loss_scale);
  wire::put_number(out, static_cast<std::uint32_t>(standing.with_residuals.size()));
  for (const std::uint32_t tensor : standing.with_residuals) {
    wire::put_number(out, tensor);
  }
  return std::string(wire::as_text(out));
}

Standing decode_standing(const std::string& text) {
  wire::ByteReader in(std::as_bytes(std::span(text)), "what a newcomer is told");
  Standing standing;
  for (bool* flag : {&standing.holds, &standing.loss_scale_set, &standing.weighted, &standing.flush}) {
    *flag = in.number<std::uint8_t>() != 0;
  }
  standing.step = in.number<std::uint64_t>();
  standing.loss_scale = in.number<double>();
  for (auto left = in.number<std::uint32_t>(); left > 0; --left) {
    standing.with_residuals.push_back(in.number<std::uint32_t>());
  }
  if (in.left() != 0) {
    in.fail("there are " + std::to_string(in.left()) + " bytes behind it");
  }
  return standing;
}

}  // namespace gradwire::session
