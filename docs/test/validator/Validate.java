import ca.uhn.fhir.context.FhirContext;
import ca.uhn.fhir.context.support.DefaultProfileValidationSupport;
import ca.uhn.fhir.validation.FhirValidator;
import ca.uhn.fhir.validation.SingleValidationMessage;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.hl7.fhir.common.hapi.validation.support.CommonCodeSystemsTerminologyService;
import org.hl7.fhir.common.hapi.validation.support.InMemoryTerminologyServerValidationSupport;
import org.hl7.fhir.common.hapi.validation.support.ValidationSupportChain;
import org.hl7.fhir.common.hapi.validation.validator.FhirInstanceValidator;

/**
 * Validates FHIR R4 resources, one in each line of the standard input, with HL7's validator and the
 * profiles of the standard, without a network. For each finding it prints the number of the line from 0,
 * the severity, the place and the message, separated by tabs; at the end "validated" and the number of lines.
 */
public class Validate {
  public static void main(String[] args) throws Exception {
    FhirContext context = FhirContext.forR4();
    FhirInstanceValidator instances = new FhirInstanceValidator(new ValidationSupportChain(
        new DefaultProfileValidationSupport(context),
        new InMemoryTerminologyServerValidationSupport(context),
        new CommonCodeSystemsTerminologyService(context)));
    instances.setAnyExtensionsAllowed(false);
    FhirValidator validator = context.newValidator().registerValidatorModule(instances);
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    int lines = 0;
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      for (SingleValidationMessage m : validator.validateWithResult(line).getMessages()) {
        System.out.println(String.join("\t", Integer.toString(lines), m.getSeverity().getCode(),
            String.valueOf(m.getLocationString()), m.getMessage().replaceAll("\\s+", " ")));
      }
      lines++;
    }
    System.out.println("validated\t" + lines);
  }
}
