#include "report/version.h"

namespace sumonce {

std::string Version() { return SUMONCE_VERSION; }

}  // namespace sumonce
