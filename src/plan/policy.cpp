#include "gradwire/policy.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "gradwire/error.hpp"
#include "plan/policy_reader.hpp"
#include "plan/stage.hpp"

namespace gradwire {

Policy::Policy() {
  defaults.codec = CodecSpec::parse("int8");
  small = Small{.codec = CodecSpec::parse("bf16")};
}

Policy Policy::uniform(std::string_view codec, Algorithm algorithm) {
  Policy policy;
  policy.source = "uniform " + std::string(codec);
  policy.defaults.codec = CodecSpec::parse(codec);
  policy.defaults.algorithm = algorithm;
  policy.small.reset();
  return policy;
}

Policy Policy::automatic(const std::vector<std::string_view>& allow) {
  Policy policy;
  policy.source = "automatic";
  for (const std::string_view codec : allow) {
    policy.defaults.allow.push_back(CodecSpec::parse(codec));
  }
  plan::check_allowed(policy.defaults.allow);
  policy.defaults.codec = policy.defaults.allow.front();
  policy.small.reset();
  policy.floor = kAutomaticFloor;
  return policy;
}

Policy Policy::load(const std::filesystem::path& file) {
  const auto fail = [&](const std::string& what) {
    throw Error(ErrorCode::invalid_argument, "policy file " + file.string() + ": " + what);
  };
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) {
    fail("it is a folder; name a TOML file in it");
  }
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  if (!stream) {
    fail(std::string("cannot be read (") + std::strerror(errno) +
         "); check the path and its permissions");  // NOLINT(concurrency-mt-unsafe)
  }
  // One byte more than allowed is enough for the reader to refuse it.
  std::string text(plan::kMaxPolicyBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  if (stream.bad()) {
    fail(std::string("reading failed (") + std::strerror(errno) + ")");  // NOLINT(concurrency-mt-unsafe)
  }
  return parse(text, file.string());
}

Policy Policy::parse(std::string_view text, const std::string& source) { return plan::read_policy(text, source); }

}  // namespace gradwire
