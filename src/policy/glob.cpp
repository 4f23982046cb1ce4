#include "policy/glob.hpp"

#include <set>
#include <utility>

#include "gradwire/error.hpp"

namespace gradwire::policy {
namespace {

constexpr std::size_t kMaxStates = 4096;
constexpr std::size_t kMaxBytes = 256;

[[noreturn]] void fail(const std::string& text, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, "bad glob \"" + text + "\": " + what);
}

unsigned char to_byte(char c) { return static_cast<unsigned char>(c); }

}  // namespace

Glob::Glob(std::string_view text) : text_(text) {
  if (text.size() > kMaxBytes) {
    fail(text_.substr(0, 32) + "...", "it has more than 256 bytes; shorten it with *");
  }
  if (text.empty()) {
    fail(text_, "it is empty and matches nothing; write \"*\" for every name");
  }
  for (std::size_t at = 0; at < text.size(); ++at) {
    Token token;
    if (text[at] == '*') {
      if (!tokens_.empty() && tokens_.back().repeated) {
        continue;
      }
      token.repeated = true;
      token.bytes.set();
    } else if (text[at] == '?') {
      token.bytes.set();
    } else if (text[at] == '[') {
      token.bytes = parse_class(at);
    } else {
      token.bytes.set(to_byte(text[at]));
    }
    tokens_.push_back(token);
  }
  names_ = {some_name(""), some_name("\1")};
}

// Parses a class; `at` is at the opening bracket before, and at the closing one afterwards.
Glob::Bytes Glob::parse_class(std::size_t& at) const {
  const std::size_t end = text_.find(']', at);
  if (end == std::string::npos) {
    fail(text_, "the [ has no closing ]; write [[] for a literal bracket");
  }
  std::string_view members = std::string_view(text_).substr(at + 1, end - at - 1);
  const bool negated = members.starts_with('!');
  members.remove_prefix(negated ? 1 : 0);
  if (members.empty()) {
    fail(text_, "a class [] without members matches nothing; write the bytes it stands for, such as [abc]");
  }
  Bytes bytes;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const bool range = i + 2 < members.size() && members[i + 1] == '-';
    const unsigned char low = to_byte(members[i]);
    const unsigned char high = to_byte(members[range ? i + 2 : i]);
    if (low >= 0x80 || high >= 0x80) {
      fail(text_, "a class holds ASCII only; write * for other characters");
    }
    if (low > high) {
      fail(text_, "the range " + std::string(members.substr(i, 3)) + " is backwards; write its lower end first");
    }
    for (unsigned byte = low; byte <= high; ++byte) {
      bytes.set(byte);
    }
    i += range ? 2 : 0;
  }
  at = end;
  return negated ? ~bytes : bytes;
}

bool Glob::matches(std::string_view name) const {
  // The matching is greedy: on a mismatch only the last star can take one more byte.
  std::size_t token = 0;
  std::size_t at = 0;
  std::size_t star = tokens_.size();
  std::size_t star_at = 0;
  while (at < name.size()) {
    if (token < tokens_.size() && tokens_[token].repeated) {
      star = token++;
      star_at = at;
    } else if (token < tokens_.size() && tokens_[token].bytes.test(to_byte(name[at]))) {
      ++token;
      ++at;
    } else if (star < tokens_.size()) {
      token = star + 1;
      at = ++star_at;
    } else {
      return false;
    }
  }
  while (token < tokens_.size() && tokens_[token].repeated) {
    ++token;
  }
  return token == tokens_.size();
}

bool Glob::contains(const Glob& other, Effort& effort) const {
  for (const std::string& name : other.names_) {
    const std::uint64_t steps = name.size() + tokens_.size();
    if (effort.left < steps) {
      return false;
    }
    effort.left -= steps;
    if (!matches(name)) {
      return false;
    }
  }
  return covers_all_names_of(other, effort);
}

// Walks through all names of `other`, one of its positions at a time, together with the set of positions in which this
// glob may be: the subset construction, made only as far as needed.
bool Glob::covers_all_names_of(const Glob& other, Effort& effort) const {
  constexpr std::uint64_t kAlphabetSteps = 256;
  const std::uint64_t both = tokens_.size() + other.tokens_.size();
  if (effort.left < kAlphabetSteps * both) {
    return false;
  }
  effort.left -= kAlphabetSteps * both;
  std::vector<unsigned char> alphabet;  // one byte of each class of bytes that the tokens of both do not tell apart
  std::set<std::vector<bool>> signatures;
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::vector<bool> signature;
    for (const Glob* glob : {this, &other}) {
      for (const Token& token : glob->tokens_) {
        signature.push_back(token.bytes.test(byte));
      }
    }
    if (signatures.insert(std::move(signature)).second) {
      alphabet.push_back(static_cast<unsigned char>(byte));
    }
  }
  using State = std::pair<std::size_t, Positions>;
  std::set<State> seen{{0, start()}};
  std::vector<State> open(seen.begin(), seen.end());
  const auto visit = [&](State state) {
    if (seen.insert(state).second) {
      open.push_back(std::move(state));
    }
  };
  while (!open.empty()) {
    const std::uint64_t steps = alphabet.size() * tokens_.size();
    if (seen.size() > kMaxStates || effort.left < steps) {
      return false;
    }
    effort.left -= steps;
    const State state = std::move(open.back());
    open.pop_back();
    const auto& [token, positions] = state;
    if (token == other.tokens_.size()) {
      if (!positions.back()) {
        return false;
      }
      continue;
    }
    if (other.tokens_[token].repeated) {
      visit({token + 1, positions});
    }
    for (const unsigned char byte : alphabet) {
      if (other.tokens_[token].bytes.test(byte)) {
        visit({other.tokens_[token].repeated ? token : token + 1, after(positions, byte)});
      }
    }
  }
  return true;
}

// A star may match nothing, so the position behind it is reached too.
void Glob::close(Positions& positions) const {
  for (std::size_t token = 0; token < tokens_.size(); ++token) {
    if (positions[token] && tokens_[token].repeated) {
      positions[token + 1] = true;
    }
  }
}

Glob::Positions Glob::start() const {
  Positions positions(tokens_.size() + 1);
  positions[0] = true;
  close(positions);
  return positions;
}

Glob::Positions Glob::after(const Positions& positions, unsigned char byte) const {
  Positions next(positions.size());
  for (std::size_t token = 0; token < tokens_.size(); ++token) {
    if (positions[token] && tokens_[token].bytes.test(byte)) {
      next[tokens_[token].repeated ? token : token + 1] = true;
    }
  }
  close(next);
  return next;
}

// A name that this glob matches, with `for_star` in place of each star.
std::string Glob::some_name(std::string_view for_star) const {
  std::string name;
  for (const Token& token : tokens_) {
    if (token.repeated) {
      name += for_star;
      continue;
    }
    unsigned byte = 0;
    while (byte < 255 && !token.bytes.test(byte)) {
      ++byte;
    }
    name.push_back(static_cast<char>(byte));
  }
  return name;
}

}  // namespace gradwire::policy
