# Copy the installer that CANN's template packed from FROM to TO. The template names it after the system.
file(GLOB installers "${FROM}/custom_opp_*.run")
list(LENGTH installers count)
if(NOT count EQUAL 1)
  message(FATAL_ERROR "${FROM} must hold one custom_opp_*.run but holds ${count}.")
endif()
file(COPY ${installers} DESTINATION "${TO}")
