#include <algorithm>
#include <array>
#include <cmath>

#include "base/units.hpp"
#include "codec/registry.hpp"
#include "gradwire/error.hpp"

namespace gradwire {
namespace {

// In the grammar, whether this build has them or not.
constexpr std::array<std::string_view, 8> kKnown{"exact", "bf16", "fp16", "fp8", "int8", "int4", "int2", "sign"};

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view{}
                                         : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

[[noreturn]] void fail(ErrorCode code, std::string_view text, const std::string& why) {
  throw Error(code, "codec \"" + std::string(text) + "\": " + why);
}

std::uint8_t parse_values(std::string_view name, std::string_view text) {
  const codec::CodecEntry* entry = codec::find_codec(name == "fp32" ? "exact" : name);
  if (entry != nullptr) {
    return entry->id;
  }
  if (std::ranges::find(kKnown, name) != kKnown.end()) {
    fail(ErrorCode::unsupported, text, std::string(name) + " is not in this build, which has " + codec::codec_names());
  }
  fail(ErrorCode::invalid_argument, text,
       "write one of " + codec::codec_names() + ", or topk(DENSITY)+CODEC such as topk(1%)+int8");
}

std::uint16_t parse_density(std::string_view density, std::string_view text) {
  try {
    const double kept = std::floor(4096 * parse_fraction(density) + 0.5);
    return static_cast<std::uint16_t>(std::clamp(kept, 1.0, 4096.0));
  } catch (const Error& error) {
    fail(ErrorCode::invalid_argument, text, error.what());
  }
}

}  // namespace

CodecSpec CodecSpec::parse(std::string_view text) {
  constexpr std::string_view kTopk = "topk(";
  CodecSpec spec;
  std::string_view rest = trim(text);
  if (rest.starts_with(kTopk)) {
    const auto close = rest.find(')');
    if (close == std::string_view::npos) {
      fail(ErrorCode::invalid_argument, text, "topk( has no closing bracket; write topk(1%)+int8");
    }
    spec.k = parse_density(rest.substr(kTopk.size(), close - kTopk.size()), text);
    rest = trim(rest.substr(close + 1));
    if (!rest.starts_with('+')) {
      fail(ErrorCode::invalid_argument, text, "topk needs a codec for the kept values; write topk(1%)+int8");
    }
    rest = trim(rest.substr(1));
  }
  spec.values = parse_values(rest, text);
  return spec;
}

std::string CodecSpec::to_string() const {
  const codec::CodecEntry* entry = codec::find_codec(values);
  const std::string name = entry == nullptr ? "unknown(" + std::to_string(values) + ")" : std::string(entry->name);
  return k == 0 ? name : "topk(" + std::to_string(k) + "/4096)+" + name;
}

}  // namespace gradwire
