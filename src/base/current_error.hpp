// The exception that is being thrown, as an Error, which leaves the library and is sent to other ranks.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "gradwire/error.hpp"

namespace gradwire {

/// To be called in a catch block. Returns the Error itself; out_of_memory for std::bad_alloc; internal, with its text,
/// for any other exception.
[[nodiscard]] inline Error current_error() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return {ErrorCode::out_of_memory, "out of memory"};
  } catch (const std::exception& error) {
    return {ErrorCode::internal, std::string("unexpected exception: ") + error.what()};
  } catch (...) {
    return {ErrorCode::internal, "unexpected exception of an unknown type"};
  }
}

}  // namespace gradwire
