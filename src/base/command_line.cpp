#include "base/command_line.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <optional>
#include <utility>

#include "base/text.hpp"

namespace gradwire {
namespace {

constexpr const char* kHidden = "***";
constexpr std::string_view kBlank = " \t\r\n\v\f";
constexpr std::string_view kQuotes = "\"'`";

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

void erase_all(std::string& text, std::string_view part) {
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part)) {
    text.erase(at, part.size());
  }
}

// Whether the text is a number with an optional unit, such as 4096, 1e6, 1_000 or 8k.
bool is_count(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789._e"), text.size());
  return digits > 0 && digits <= 12 && text[0] >= '0' && text[0] <= '9' && text.size() - digits <= 1;
}

// Whether the value behind a name, which ends at a blank, may be a secret.
bool is_secret(std::string_view name, std::string_view value) {
  std::string lowered = lower(name);
  erase_all(lowered, "tokenize");
  if (is_count(value.substr(0, value.find_first_of(kBlank)))) {
    erase_all(lowered, "tokens");
  }
  constexpr std::array kWords{"key",    "token",      "secret",     "password",
                              "passwd", "passphrase", "credential", "authorization"};
  return std::any_of(kWords.begin(), kWords.end(),
                     [&](const char* word) { return lowered.find(word) != std::string::npos; });
}

// The name that ends where a separator stands; quotes and blanks may lie between, as in {"key": "X"}.
std::string_view name_before(std::string_view text) {
  const std::size_t last = text.find_last_not_of(std::string(kBlank) + std::string(kQuotes));
  std::size_t begin = last == std::string_view::npos ? 0 : last + 1;
  const std::size_t end = begin;
  while (begin > 0 && text::is_plain(text[begin - 1])) {
    --begin;
  }
  return text.substr(begin, end - begin);
}

std::string_view without_front(std::string_view text, std::string_view front) {
  text.remove_prefix(std::min(text.find_first_not_of(front), text.size()));
  return text;
}

// Where the value behind the first secret name begins, in a text with "NAME=VALUE" or "NAME: VALUE".
std::optional<std::size_t> assigned_secret(std::string_view text) {
  for (std::size_t at = text.find_first_of("=:"); at != std::string_view::npos; at = text.find_first_of("=:", at + 1)) {
    const std::string_view value = text.substr(at + 1);
    if (!value.empty() &&
        is_secret(name_before(text.substr(0, at)), without_front(value, std::string(kBlank) + std::string(kQuotes)))) {
      return at + 1;
    }
  }
  return std::nullopt;
}

// Where the value behind "--NAME" begins, in a text of several words.
std::optional<std::size_t> optional_secret(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = text.find_first_not_of(kBlank, at);
    const std::size_t end = text.find_first_of(kBlank, std::min(begin, text.size()));
    const std::size_t next = text.find_first_not_of(kBlank, std::min(end, text.size()));
    if (next == std::string_view::npos) {
      break;
    }
    const std::string_view word = without_front(text.substr(begin, end - begin), kQuotes);
    if (word.starts_with('-') && text[next] != '-' && is_secret(word, text.substr(next))) {
      return next;
    }
    at = end;
  }
  return std::nullopt;
}

// Hides "user:password" in each "scheme://user:password@host". A password that is not encoded may have a slash in it.
std::string without_passwords(std::string text) {
  for (std::size_t at = text.find("://"); at != std::string::npos; at = text.find("://", at + 1)) {
    const std::size_t begin = at + 3;
    const std::size_t end =
        std::min(text.find_first_of(std::string(kBlank) + std::string(kQuotes), begin), text.size());
    const std::size_t slash = std::min(text.find_first_of("/?#", begin), end);
    const std::size_t colon = text.find(':', begin);
    if (colon >= slash) {
      continue;
    }
    std::size_t behind = text.rfind('@', slash);
    if (behind == std::string::npos || behind < colon) {  // no user, or the slash is one of the password
      const std::string_view port = std::string_view(text).substr(colon + 1, slash - colon - 1);
      behind =
          port.find_first_not_of("0123456789") == std::string_view::npos ? std::string::npos : text.rfind('@', end);
    }
    if (behind != std::string::npos && behind > colon && behind < end) {
      text.replace(begin, behind - begin, kHidden);
    }
  }
  return text;
}

// Options whose next two words are the name and the value of a variable.
bool names_a_variable(std::string_view word) {
  constexpr std::array kOptions{"-genv", "-env", "--env", "-mca", "--mca", "-gmca", "--gmca"};
  return std::find(kOptions.begin(), kOptions.end(), word) != kOptions.end();
}

}  // namespace

std::vector<std::string> own_command_line(std::size_t most) {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; words.size() < most && std::getline(file, word, '\0');) {
    words.push_back(word);
  }
  return words;
}

std::string without_secrets(std::string_view text) {
  const std::size_t end =
      std::min(assigned_secret(text).value_or(text.size()), optional_secret(text).value_or(text.size()));
  return without_passwords(std::string(text.substr(0, end))) + (end < text.size() ? kHidden : "");
}

std::string without_secrets(std::string_view name, std::string_view value) {
  return is_secret(name, value) && !value.empty() ? kHidden : without_secrets(value);
}

std::vector<std::string> without_secrets(std::vector<std::string> words) {
  bool hidden = false;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string word = words[i];
    if (std::exchange(hidden, false)) {
      words[i] = kHidden;
      continue;
    }
    const bool last = i + 1 == words.size();
    const bool option = word.starts_with('-') || (i > 0 && names_a_variable(words[i - 1]));
    hidden = option && word.find('=') == std::string::npos && !last && !words[i + 1].starts_with('-') &&
             is_secret(word, words[i + 1]);
    words[i] = without_secrets(std::string_view(word));
  }
  return words;
}

}  // namespace gradwire
