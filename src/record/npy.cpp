#include "record/npy.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <optional>
#include <string>
#include <system_error>

#include "base/text.hpp"

namespace gradwire::record {
namespace {

static_assert(std::endian::native == std::endian::little, "values are read as they lie");

constexpr std::uint64_t kVersionBytes = 2;
constexpr std::uint32_t kMostNpyHeaderBytes = 1U << 16;
constexpr std::size_t kMostNpySides = 32;  // as in NumPy 1; 64 in NumPy 2
constexpr std::size_t kAlignment = 64;

// Reads the header's dict, of which only three keys exist.
class HeaderReader {
 public:
  HeaderReader(const GradientFile& file, std::string_view text, std::uint64_t offset)
      : file_(file), text_(text), offset_(offset) {}

  struct Header {
    std::optional<DType> dtype;
    std::optional<bool> fortran_order;
    std::optional<std::vector<std::uint64_t>> shape;
  };

  Header read() {
    Header header;
    expect('{');
    while (!take('}')) {
      const std::string_view key = read_string("a key in quotes");
      expect(':');
      if (key == "descr") {
        header.dtype = read_dtype();
      } else if (key == "fortran_order") {
        header.fortran_order = read_bool();
      } else if (key == "shape") {
        header.shape = read_shape();
      } else {
        refuse("the key " + text::quote(key) + " is unknown; save the array again with numpy.save");
      }
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    if (!header.dtype || !header.fortran_order || !header.shape) {
      refuse("descr, fortran_order or shape is missing; save the array again with numpy.save");
    }
    skip_space();
    if (at_ != text_.size()) {
      refuse("there is text behind the dict; save the array again with numpy.save");
    }
    return header;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    file_.refuse("header, byte " + std::to_string(offset_ + at_), what);
  }
  [[noreturn]] void refuse_syntax(const std::string& expected) const {
    refuse("expected " + expected + "; the file is damaged, save the array again with numpy.save");
  }

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) {
      ++at_;
    }
  }
  bool take(char wanted) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != wanted) {
      return false;
    }
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!take(wanted)) {
      refuse_syntax(std::string("'") + wanted + "'");
    }
  }
  bool take_word(std::string_view word) {
    skip_space();
    if (!text_.substr(at_).starts_with(word)) {
      return false;
    }
    at_ += word.size();
    return true;
  }

  std::string_view read_string(const std::string& expected) {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : ' ';
    const std::size_t end = quote == '\'' || quote == '"' ? text_.find(quote, at_ + 1) : std::string_view::npos;
    if (end == std::string_view::npos) {
      refuse_syntax(expected);
    }
    const std::string_view found = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return found;
  }

  DType read_dtype() {
    skip_space();
    if (at_ < text_.size() && text_[at_] == '[') {
      refuse("the elements are records of several fields; save one field, as numpy.save(file, array[\"field\"])");
    }
    const std::size_t start = at_;
    const std::string_view descr = read_string("a type in quotes, such as '<f4'");
    const auto is = [&](std::string_view type) { return descr == type || descr == std::string("<").append(type); };
    if (is("f4")) {
      return DType::f32;
    }
    if (is("f8")) {
      return DType::f64;
    }
    if (is("f2")) {
      return DType::f16;
    }
    if (is("V2") || descr == "|V2" || is("u2")) {
      return DType::bf16;
    }
    at_ = start;
    if (descr.starts_with('>')) {
      refuse("the elements are big endian (" + text::quote(descr) +
             "); save array.astype(array.dtype.newbyteorder(\"<\"))");
    }
    refuse("elements of type " + text::quote(descr) +
           " are no gradients here; save them as float32, float64, float16 or bfloat16, such as "
           "array.astype(\"float32\")");
  }

  bool read_bool() {
    if (take_word("True")) {
      return true;
    }
    if (!take_word("False")) {
      refuse_syntax("True or False");
    }
    return false;
  }

  std::vector<std::uint64_t> read_shape() {
    std::vector<std::uint64_t> shape;
    expect('(');
    while (!take(')')) {
      skip_space();
      std::uint64_t side = 0;
      const char* const begin = text_.data() + at_;
      const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), side);
      if (error != std::errc()) {
        refuse_syntax("the length of a side");
      }
      at_ += static_cast<std::size_t>(end - begin);
      take_word("L");  // as Python 2 wrote it
      if (shape.size() == kMostNpySides) {
        refuse("the array has more than " + std::to_string(kMostNpySides) + " dimensions; save array.reshape(-1)");
      }
      shape.push_back(side);
      if (!take(',')) {
        expect(')');
        break;
      }
    }
    return shape;
  }

  const GradientFile& file_;
  std::string_view text_;
  std::uint64_t offset_;  // of the text in the file
  std::size_t at_ = 0;
};

bool has_an_order(const std::vector<std::uint64_t>& shape) {
  return std::count_if(shape.begin(), shape.end(), [](std::uint64_t side) { return side != 1; }) > 1;
}

std::string_view descr_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return "<f4";
    case DType::f16: return "<f2";
    case DType::bf16: return "|V2";
    case DType::f64: return "<f8";
  }
  return "";
}

}  // namespace

StoredGradient list_npy(GradientFile& file) {
  std::array<char, kNpyMagic.size()> magic{};
  file.read(0, magic.data(), magic.size(), "the first bytes");
  if (std::string_view(magic.data(), magic.size()) != kNpyMagic) {
    file.refuse("byte 0", "does not begin as a .npy file does (\\x93NUMPY); save the array with numpy.save");
  }
  std::uint64_t at = kNpyMagic.size();
  const auto version = file.number<std::array<std::uint8_t, kVersionBytes>>(at, "its version");
  at += kVersionBytes;
  if (version[0] < 1 || version[0] > 3 || version[1] != 0) {
    file.refuse("byte " + std::to_string(kNpyMagic.size()),
                "version " + std::to_string(version[0]) + "." + std::to_string(version[1]) +
                    " of the format is unknown; numpy.lib.format.write_array(..., version=(1, 0)) writes one that is "
                    "known");
  }
  const bool is_long = version[0] > 1;
  const std::uint32_t length = is_long ? file.number<std::uint32_t>(at, "the length of its header")
                                       : file.number<std::uint16_t>(at, "the length of its header");
  const std::uint64_t length_at = at;
  at += is_long ? sizeof(std::uint32_t) : sizeof(std::uint16_t);
  if (length > kMostNpyHeaderBytes || length > file.size() - at) {
    file.refuse("byte " + std::to_string(length_at), "the header claims " + std::to_string(length) + " bytes, more " +
                                                         "than the file holds or a header has; the file is damaged, "
                                                         "save the array again with numpy.save");
  }
  std::string text(length, '\0');
  file.read(at, text.data(), text.size(), "its header");
  const HeaderReader::Header header = HeaderReader(file, text, at).read();
  at += length;
  StoredGradient found{.name = file.path().stem().string(),
                       .dtype = *header.dtype,
                       .shape = *header.shape,
                       .file = file.path(),
                       .offset = at};
  if (*header.fortran_order && has_an_order(found.shape)) {
    file.refuse("header", "the array is in column-major (Fortran) order; save numpy.ascontiguousarray(array)");
  }
  found.count = elements_of(file, "header", found.shape, found.dtype);
  const std::uint64_t bytes = found.count * element_bytes(found.dtype);
  if (bytes != file.size() - at) {
    file.refuse("byte " + std::to_string(at),
                "the header promises " + std::to_string(bytes) + " bytes of elements, but " +
                    std::to_string(file.size() - at) + " follow; " +
                    (bytes > file.size() - at ? "the file is cut off, save the array again"
                                              : "save each array in a file of its own"));
  }
  return found;
}

std::string npy_header(DType dtype, std::uint64_t count) {
  std::string dict = "{'descr': '" + std::string(descr_of(dtype)) + "', 'fortran_order': False, 'shape': (" +
                     std::to_string(count) + ",), }";
  const std::size_t before = kNpyMagic.size() + kVersionBytes + sizeof(std::uint16_t);
  const std::size_t whole = (before + dict.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  dict.append(whole - before - dict.size() - 1, ' ');
  dict += '\n';
  std::string header(kNpyMagic);
  header += '\x01';
  header += '\0';
  header += static_cast<char>(dict.size() & 0xFFU);
  header += static_cast<char>(dict.size() >> 8U);
  return header + dict;
}

}  // namespace gradwire::record
