import ca.uhn.hl7v2.DefaultHapiContext;
import ca.uhn.hl7v2.app.Connection;
import ca.uhn.hl7v2.model.Message;
import ca.uhn.hl7v2.model.v26.datatype.NM;
import ca.uhn.hl7v2.model.v26.message.ACK;
import ca.uhn.hl7v2.model.v26.message.ADT_A01;
import ca.uhn.hl7v2.model.v26.message.ORU_R01;
import ca.uhn.hl7v2.model.v26.segment.ERR;
import ca.uhn.hl7v2.model.v26.segment.OBX;
import java.util.concurrent.TimeUnit;

/**
 * Sends messages of IHE's PCD-01 with HAPI, and prints what HAPI reads in each acknowledgement: Send HOST PORT TLS DEVICE.
 */
class Send {
    private static String device;

    /** Returns an observation of a device, or its containment if the value is null. */
    static void observe(ORU_R01 m, String code, String name, String place, String value, String unit) throws Exception {
        var order = m.getPATIENT_RESULT().getORDER_OBSERVATION();
        int i = order.getOBSERVATIONReps();
        OBX obx = order.getOBSERVATION(i).getOBX();
        obx.getSetIDOBX().setValue(Integer.toString(i + 1));
        obx.getObservationIdentifier().getIdentifier().setValue(code);
        obx.getObservationIdentifier().getText().setValue(name);
        obx.getObservationIdentifier().getNameOfCodingSystem().setValue("MDC");
        obx.getObservationSubID().setValue(place);
        if (value == null) {
            obx.getObservationResultStatus().setValue("X");
            obx.getEquipmentInstanceIdentifier(0).getEntityIdentifier().setValue(device);
            return;
        }
        obx.getValueType().setValue("NM");
        NM number = new NM(m);
        number.setValue(value);
        obx.getObservationValue(0).setData(number);
        obx.getUnits().getIdentifier().setValue(unit);
        obx.getUnits().getNameOfCodingSystem().setValue("MDC");
        obx.getObservationResultStatus().setValue("R");
    }

    /** Returns a message with the containment of a monitor, a saturation and a blood pressure. */
    static ORU_R01 message(String time, String saturation) throws Exception {
        ORU_R01 m = new ORU_R01();
        m.initQuickstart("ORU", "R01", "P");
        m.getMSH().getSendingApplication().getNamespaceID().setValue("gw-1");
        var patient = m.getPATIENT_RESULT().getPATIENT().getPID();
        patient.getPatientIdentifierList(0).getIDNumber().setValue("P-7");
        patient.getPatientName(0).getFamilyName().getSurname().setValue("Müller & Søn");
        m.getMSH().getCharacterSet(0).setValue("UNICODE UTF-8");
        var obr = m.getPATIENT_RESULT().getORDER_OBSERVATION().getOBR();
        obr.getSetIDOBR().setValue("1");
        obr.getObservationDateTime().setValue(time);
        observe(m, "69965", "MDC_DEV_MON_PHYSIO_MULTI_PARAM_MDS", "1.0.0.0", null, null);
        observe(m, "150456", "MDC_PULS_OXIM_SAT_O2", "1.1.1.1", saturation, "262688");
        observe(m, "150021", "MDC_PRESS_BLD_NONINV_SYS", "1.1.2.1", "121", "266016");
        observe(m, "150022", "MDC_PRESS_BLD_NONINV_DIA", "1.1.2.2", "79.5", "266016");
        return m;
    }

    static void send(Connection connection, Message m) throws Exception {
        ACK ack = (ACK) connection.getInitiator().sendAndReceive(m);
        System.out.print(ack.getMSA().getAcknowledgmentCode().getValue());
        for (int i = 0; i < ack.getERRReps() && !ack.getERR(i).isEmpty(); i++) {
            ERR err = ack.getERR(i);
            var place = err.getErrorLocation(0);
            System.out.print("; " + place.getSegmentID().getValue() + "-" + place.getFieldPosition().getValue() + " of "
                + place.getSegmentSequence().getValue() + ": " + err.getHL7ErrorCode().getIdentifier().getValue() + " "
                + err.getUserMessage().getValue());
        }
        System.out.println();
    }

    public static void main(String[] args) throws Exception {
        device = args[3];
        try (var context = new DefaultHapiContext()) {
            // Built first, because that loads hundreds of classes, and the server does not wait for a first message for long.
            ORU_R01 first = message("20261121100001.000+0100", "97.5");
            Connection connection = context.newClient(args[0], Integer.parseInt(args[1]), Boolean.parseBoolean(args[2]));
            connection.getInitiator().setTimeout(2, TimeUnit.MINUTES); // 10 s by default: too few for a busy machine
            send(connection, first);
            send(connection, first);
            send(connection, message("20261121100002.000+0100", "300"));
            send(connection, message("20261121100001.000+0100", "96"));
            ADT_A01 admission = new ADT_A01();
            admission.initQuickstart("ADT", "A01", "P");
            send(connection, admission);
            send(connection, message("20261121100003.000+0100", "98"));
            connection.close();
        }
    }
}
